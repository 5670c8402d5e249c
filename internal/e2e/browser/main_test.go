package browser_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ringway/ringway/internal/e2e/browser"
	"github.com/ringway/ringway/internal/fleet"
	"github.com/ringway/ringway/internal/loadgen"
	"github.com/ringway/ringway/internal/relay"
	"github.com/ringway/ringway/membership/identity"
)

// artefacts is where pictures go: the directory of BROWSER_ARTEFACTS, else a temporary
// one that stays.
var artefacts string

func TestMain(m *testing.M) {
	var err error
	if artefacts = os.Getenv("BROWSER_ARTEFACTS"); artefacts == "" {
		artefacts, err = os.MkdirTemp("", "ringway-browser-")
	} else {
		err = os.MkdirAll(artefacts, 0o755)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("pictures are in", artefacts)
	// A probe of memberlist ends by itself within a second of the shutdown.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).probeNode"))
}

func startBrowser(t *testing.T) *browser.Browser {
	t.Helper()
	b, err := browser.Start(context.Background()) // t.Context ends before cleanups
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// tab opens a page in a tab that must have no problems until the end of the test.
func tab(t *testing.T, b *browser.Browser, cfg browser.TabConfig, address string) *browser.Tab {
	t.Helper()
	tab, err := b.Tab(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tab.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := tab.Go(address); err != nil {
		t.Fatal(err)
	}
	return tab
}

func await(t *testing.T, tab *browser.Tab, what, condition string) {
	t.Helper()
	if err := tab.Await(what, condition); err != nil {
		t.Fatal(err)
	}
}

func evaluate[T any](t *testing.T, tab *browser.Tab, expression string) T {
	t.Helper()
	v, err := browser.Evaluate[T](tab, expression)
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// picture keeps a picture of the page as an artefact.
func picture(t *testing.T, tab *browser.Tab, name string) {
	t.Helper()
	png, err := tab.Picture()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(artefacts, name+".png"), png, 0o644); err != nil {
		t.Fatal(err)
	}
}

// small is a fleet of three relays and six workers of two services.
func small(t *testing.T) *fleet.Fleet {
	t.Helper()
	f := fleet.New(fleet.Config{Cluster: "shop", Environment: "production", Insecure: true})
	t.Cleanup(func() {
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
	for i := range 3 {
		startRelay(t, f, fmt.Sprintf("relay-%d", i+1), identity.RoleRelay)
	}
	for i := range 6 {
		startWorker(t, f, fmt.Sprintf("worker-%d", i+1))
	}
	return f
}

func startRelay(t *testing.T, f *fleet.Fleet, id string, role identity.Role) {
	t.Helper()
	if err := f.StartRelay(id, func(s *relay.Settings) { s.Role, s.Links.Grace = role, 5*time.Second }); err != nil {
		t.Fatal(err)
	}
}

func startWorker(t *testing.T, f *fleet.Fleet, id string) {
	t.Helper()
	stub := loadgen.NewStub(loadgen.StubConfig{Name: id, Median: 25 * time.Millisecond})
	if err := f.StartWorker(fleet.WorkerConfig{ID: id, Handler: stub, Services: []string{"checkout", "search"}}); err != nil {
		t.Fatal(err)
	}
}

// pageOf is the URL of a relay's status page.
func pageOf(f *fleet.Fleet, relay string) string { return "http://" + f.Relay(relay).AdminAddr() + "/" }

const (
	live = `document.documentElement.dataset.live === "on"`
	six  = `document.querySelectorAll("#peers tbody tr[data-state=active]").length === 6`
)
