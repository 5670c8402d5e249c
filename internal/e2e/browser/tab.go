package browser

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// Patience limits every wait for a condition in a page. It is reached only if something is
// broken.
const Patience = 90 * time.Second

// binary is the name of the program, and of its package in Debian.
const binary = "chromium"

// Browser is one headless Chromium.
type Browser struct {
	ctx    context.Context
	cancel []context.CancelFunc
}

// Start starts the browser. If the browser is missing, the error names the package to
// install.
func Start(ctx context.Context) (*Browser, error) {
	path, err := exec.LookPath(binary)
	if err != nil {
		return nil, fmt.Errorf("%w: install it (Debian package: %s)", err, binary)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path),
		chromedp.Flag("headless", "new"),
		chromedp.NoSandbox, // the sandbox does not run as root
		chromedp.Flag("hide-scrollbars", true),
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"),
		chromedp.WSURLReadTimeout(time.Minute),
	)
	b := &Browser{}
	allocated, cancel := chromedp.NewExecAllocator(ctx, options...)
	b.cancel = append(b.cancel, cancel)
	b.ctx, cancel = chromedp.NewContext(allocated)
	b.cancel = append(b.cancel, cancel)
	if err := chromedp.Do(b.ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", path, err), b.Close())
	}
	return b, nil
}

// Close ends the browser and waits for its process.
func (b *Browser) Close() error {
	ctx, cancel := context.WithTimeout(b.ctx, Patience)
	defer cancel()
	err := chromedp.Cancel(ctx)
	for i := len(b.cancel) - 1; i >= 0; i-- {
		b.cancel[i]()
	}
	return err
}

// TabConfig defines how a page is displayed.
type TabConfig struct {
	// Dark prefers a dark page; NoScript disables JavaScript; Still prefers reduced motion.
	Dark, NoScript, Still bool
	// Width and Height are those of the window in pixels. Default 1400 × 1000.
	Width, Height int64
	// Scale is the number of pixels in a picture for one pixel of the page. Default 1.
	Scale float64
}

// Tab is one page. It records everything that a page must not do.
type Tab struct {
	ctx    context.Context
	cancel context.CancelFunc

	mu       sync.Mutex // guards the fields below
	origin   string
	problems []error
	requests int
}

// Tab opens an empty tab.
func (b *Browser) Tab(cfg TabConfig) (*Tab, error) {
	if cfg.Width == 0 {
		cfg.Width, cfg.Height = 1400, 1000
	}
	if cfg.Scale == 0 {
		cfg.Scale = 1
	}
	t := &Tab{}
	t.ctx, t.cancel = chromedp.NewContext(b.ctx, chromedp.WithListener(t.note))
	scheme, motion := "light", "no-preference"
	if cfg.Dark {
		scheme = "dark"
	}
	if cfg.Still {
		motion = "reduce"
	}
	// The first Do creates the tab, which exists until the context of that Do ends.
	err := chromedp.Do(t.ctx,
		call(network.Enable, network.EnableParams{}), call(runtime.Enable, cdp.Empty{}), call(cdplog.Enable, cdp.Empty{}),
		call(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: cfg.Width, Height: cfg.Height, DeviceScaleFactor: cfg.Scale}),
		call(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: cfg.NoScript}),
		call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: motion},
		}}),
	)
	if err != nil {
		t.cancel()
		return nil, err
	}
	return t, nil
}

// call turns a command of the protocol into an action.
func call[P any](command cdp.Command[P, cdp.Empty], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, command, params)
		return err
	})
}

// note records an event that a page must not cause.
func (t *Tab) note(event any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		t.problems = append(t.problems, fmt.Errorf("exception: %s", describe(e.ExceptionDetails)))
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning || e.Type == runtime.ConsoleAPICalledTypeAssert {
			var words []string
			for _, a := range e.Args {
				words = append(words, fmt.Sprint(a.Value, a.Description))
			}
			t.problems = append(t.problems, fmt.Errorf("console %s: %s", e.Type, strings.Join(words, " ")))
		}
	case *cdplog.EventEntryAdded:
		if e.Entry.Level == cdplog.EntryLevelError || e.Entry.Level == cdplog.EntryLevelWarning {
			t.problems = append(t.problems, fmt.Errorf("console %s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL))
		}
	case *network.EventRequestWillBeSent:
		t.requests++
		u, err := url.Parse(e.Request.URL)
		if err != nil || u.Scheme+"://"+u.Host != t.origin {
			t.problems = append(t.problems, fmt.Errorf("a request left the origin %s: %s", t.origin, e.Request.URL))
		}
	}
}

func describe(e *runtime.ExceptionDetails) string {
	text := fmt.Sprintf("%s at %s:%d", e.Text, e.URL, e.LineNumber+1)
	if e.Exception != nil {
		text += ": " + e.Exception.Description
	}
	return text
}

// Go opens an address. From then on requests must go to the origin of the address.
func (t *Tab) Go(address string) error {
	u, err := url.Parse(address)
	if err != nil {
		return err
	}
	t.mu.Lock()
	t.origin = u.Scheme + "://" + u.Host
	t.mu.Unlock()
	return t.Do(chromedp.Navigate(address))
}

// Do runs actions within Patience.
func (t *Tab) Do(actions ...chromedp.Action[chromedp.Void]) error {
	ctx, cancel := context.WithTimeout(t.ctx, Patience)
	defer cancel()
	return chromedp.Do(ctx, actions...)
}

// Evaluate returns the value of a JavaScript expression.
func Evaluate[T any](t *Tab, expression string) (T, error) {
	ctx, cancel := context.WithTimeout(t.ctx, Patience)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[T](expression))
}

// Await waits until a condition, a JavaScript expression, is true in the page.
func (t *Tab) Await(what, condition string) error {
	for deadline := time.Now().Add(Patience); ; {
		held, err := Evaluate[bool](t, "!!("+condition+")")
		if held && err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			text, textErr := Evaluate[string](t, "document.body.innerText")
			return errors.Join(fmt.Errorf("%s did not happen in time; the page shows:\n%s", what, text), err, textErr)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-t.ctx.Done():
			return t.ctx.Err()
		}
	}
}

// Picture returns the whole page as PNG.
func (t *Tab) Picture() ([]byte, error) {
	ctx, cancel := context.WithTimeout(t.ctx, Patience)
	defer cancel()
	return chromedp.Run(ctx, chromedp.FullScreenshot(100))
}

// Requests returns the number of requests since the tab was opened.
func (t *Tab) Requests() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.requests
}

// Problems returns everything that the page did and must not do.
func (t *Tab) Problems() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return errors.Join(t.problems...)
}

// Close closes the tab and returns its problems.
func (t *Tab) Close() error {
	t.cancel()
	return t.Problems()
}
