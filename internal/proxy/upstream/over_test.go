package upstream

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringway/ringway/advertise"
)

// stuck is a client that takes no byte of its answer and sends its body when more is closed: its calls wait
// until the pool sets a deadline for them.
type stuck struct {
	header           http.Header
	calls            chan struct{} // gets one when a call waits
	more             chan struct{}
	read, written    chan struct{} // closed by a deadline
	onRead, onWrites sync.Once
}

func newStuck() *stuck {
	return &stuck{header: http.Header{}, calls: make(chan struct{}, 9), more: make(chan struct{}), read: make(chan struct{}), written: make(chan struct{})}
}

func (c *stuck) Header() http.Header { return c.header }

func (c *stuck) Write([]byte) (int, error) {
	c.calls <- struct{}{}
	<-c.written
	return 0, os.ErrDeadlineExceeded
}

func (c *stuck) WriteHeader(status int) {
	if status < 200 {
		_, _ = c.Write(nil)
	}
}

func (c *stuck) Read(p []byte) (int, error) {
	c.calls <- struct{}{}
	select {
	case <-c.more:
		return len(p), nil
	case <-c.read:
		return 0, os.ErrDeadlineExceeded
	}
}

func (c *stuck) Close() error { return nil }

func (c *stuck) SetReadDeadline(at time.Time) error {
	if at.Equal(expiredDeadline) {
		c.onRead.Do(func() { close(c.read) })
	}
	return nil
}

func (c *stuck) SetWriteDeadline(time.Time) error {
	c.onWrites.Do(func() { close(c.written) })
	return nil
}

// carriesStuck carries a request of a client that is stuck, with a small body or none, in a bubble. act is
// called when a call of the client waits.
func carriesStuck(t *testing.T, protocol advertise.Protocol, request string, act func(p *Pool, c *stuck, cancel func())) (took time.Duration, res Result, fault *Fault) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p, end := served(t, protocol, &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/informs" {
				w.WriteHeader(http.StatusEarlyHints)
				<-r.Context().Done()
			}
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = io.WriteString(w, "answer")
		})})
		c := newStuck()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		method, path, _ := strings.Cut(request, " ")
		body := io.ReadCloser(http.NoBody)
		if method == http.MethodPost {
			body = c
		}
		r := httptest.NewRequestWithContext(ctx, method, path, body)
		if method == http.MethodPost {
			r.ContentLength = 1
		}
		ended := make(chan struct{})
		began := time.Now()
		go func() {
			defer close(ended)
			res, fault = p.Carry(c, r, &Options{Deadline: began.Add(stuckLimit / 3), AfterBody: stuckLimit / 3, Progress: stuckLimit})
		}()
		<-c.calls
		act(p, c, cancel)
		select {
		case <-ended:
		case <-time.After(time.Hour):
			t.Error("the client holds the exchange")
			close(c.more)
			c.onWrites.Do(func() { close(c.written) })
			<-ended
		}
		took = time.Since(began)
		end()
	})
	return took, res, fault
}

const stuckLimit = 30 * time.Second

// The context of a request ends when its client closes its side.
func TestAnExchangeThatIsOverIsNotHeldByItsClientForLongerThanTheProgressTimeout(t *testing.T) {
	for _, protocol := range []advertise.Protocol{advertise.HTTP1, advertise.H2C} {
		for name, row := range map[string]struct {
			request string
			act     func(p *Pool, c *stuck, cancel func())
		}{
			"its client has closed its side and reads nothing":         {"GET /", func(_ *Pool, _ *stuck, cancel func()) { cancel() }},
			"its head is late while its client reads no informational": {"GET /informs", func(*Pool, *stuck, func()) {}},
			"its endpoint is dead and its client reads nothing":        {"GET /informs", func(p *Pool, _ *stuck, _ func()) { p.Abandon() }},
			"its endpoint is dead and its client sends nothing":        {"POST /", func(p *Pool, _ *stuck, _ func()) { p.Abandon() }},
			"its time is over and its client sends nothing":            {"POST /", func(*Pool, *stuck, func()) {}},
		} {
			t.Run(string(protocol)+": "+name, func(t *testing.T) {
				took, res, fault := carriesStuck(t, protocol, row.request, row.act)
				if fault == nil || !fault.Client() || res.Silent != SilentClient || took > stuckLimit+time.Second {
					t.Errorf("after %v: silent %v: %v", took, res.Silent, fault)
				}
			})
		}
	}
}

func TestASmallBodyThatComesBehindTheDeadlineIsSent(t *testing.T) {
	for _, protocol := range []advertise.Protocol{advertise.HTTP1, advertise.H2C} {
		t.Run(string(protocol), func(t *testing.T) {
			_, res, fault := carriesStuck(t, protocol, "POST /", func(_ *Pool, c *stuck, _ func()) {
				time.Sleep(stuckLimit / 2)
				c.onWrites.Do(func() { close(c.written) })
				close(c.more)
			})
			if res.Status != http.StatusOK || fault != nil && !fault.Client() {
				t.Errorf("status %d: %v", res.Status, fault)
			}
		})
	}
}

func TestNothingOfASmallBodyReachesAnEndpointThatDiedBeforeTheBodyCame(t *testing.T) {
	for _, protocol := range []advertise.Protocol{advertise.HTTP1, advertise.H2C} {
		t.Run(string(protocol), func(t *testing.T) {
			_, _, fault := carriesStuck(t, protocol, "POST /", func(p *Pool, c *stuck, _ func()) {
				p.Abandon()
				time.Sleep(stuckLimit / 2)
				close(c.more)
			})
			if fault == nil || !errors.Is(fault, ErrAbandoned) || fault.Sent() || fault.Client() {
				t.Error(fault)
			}
		})
	}
}
