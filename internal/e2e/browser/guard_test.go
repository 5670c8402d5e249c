package browser_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/e2e/browser"
	"github.com/ringway/ringway/internal/statuspage"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// What a page must not do is noticed: without this, the other tests could not fail.
func TestProblemsOfAPageAreNoticed(t *testing.T) {
	b := startBrowser(t)
	for want, script := range map[string]string{
		"exception":                 `setTimeout(() => { throw new Error("thrown") })`,
		"console error":             `console.error("said")`,
		"a request left the origin": `fetch("http://127.0.0.1:9/").catch(() => {})`,
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			if r.URL.Path == "/" {
				_, _ = fmt.Fprintf(w, `<!DOCTYPE html><link rel="icon" href="data:,"><script>%s</script>`, script)
			}
		}))
		p, err := b.Tab(browser.TabConfig{})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Go(server.URL + "/"); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(browser.Patience); p.Problems() == nil && time.Now().Before(deadline); {
			time.Sleep(10 * time.Millisecond)
		}
		if err := p.Close(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the problems are %v, want %s", script, err, want)
		}
		server.Close()
	}
}

// The policy is what keeps scripts out should one ever get into the page.
func TestThePolicyStopsAScriptThatGotIntoThePage(t *testing.T) {
	b := startBrowser(t)
	p := tabOf(t, b, statuspage.Document{ID: "relay-1", Role: "relay"})
	blocked := evaluate[bool](t, p, `(() => { const s = document.createElement("script"); s.textContent = "window.ran = true"; document.body.append(s); return window.ran !== true; })()`)
	if !blocked {
		t.Error("an inline script ran")
	}
	if err := p.Close(); err == nil || !strings.Contains(err.Error(), "Content Security Policy") {
		t.Errorf("the browser says %v", err)
	}
}

// tabOf shows a document that no process has. The tab is the caller's to close.
func tabOf(t *testing.T, b *browser.Browser, d statuspage.Document) *browser.Tab {
	t.Helper()
	mux := http.NewServeMux()
	statuspage.Handle(mux, statuspage.Config{Document: func(context.Context, string) statuspage.Document { return d }, Registerer: prometheus.NewRegistry()})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	p, err := b.Tab(browser.TabConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Go(server.URL + "/"); err != nil {
		t.Fatal(err)
	}
	await(t, p, "the page is live", live)
	return p
}

func TestThousandsOfWorkersStayLegible(t *testing.T) {
	const n = 5000
	b := startBrowser(t)
	d := statuspage.Document{ID: "relay-07", Role: "relay", Cluster: "shop", Environment: "production", Build: "v1.0.0", Ready: true}
	checkout := api.ListedService{ServiceSummary: api.ServiceSummary{Service: "checkout", Endpoints: n}, Ready: n, RangeText: "750 of 5,000 workers, from position 1,500"}
	f := &statuspage.Focus{Row: statuspage.Row{ListedService: checkout, Index: 3, Strategy: "p2c"}, Role: "Served by 20 relays."}
	f.Ring.Minimum = 3
	for i := range n {
		w := statuspage.RingWorker{ID: fmt.Sprintf("worker-%04d", i), State: statuspage.Active, Relays: 3, Mine: i >= 1500 && i < 2250}
		switch {
		case i%997 == 0:
			w.State = statuspage.Evicted
		case i > 4000 && i < 4100:
			w.Relays = 2
		case i > 3000 && i < 3020:
			w.State = statuspage.Draining
		}
		f.Ring.Workers = append(f.Ring.Workers, w)
		if w.Mine {
			f.Peers = append(f.Peers, statuspage.Peer{Peer: api.Peer{Node: w.ID, Weight: 1. / 750}, State: w.State})
		}
		d.Members = append(d.Members, api.ListedMember{Member: membership.Member{ID: w.ID, Role: identity.RoleWorker}, State: api.MemberAlive})
	}
	f.Ring.Arcs = []statuspage.Arc{{Relay: "relay-07", Self: true, Runs: []statuspage.Run{{Start: 1500, Len: 750}}}}
	d.Focus, d.Services = f, []statuspage.Row{f.Row}
	p := tabOf(t, b, d)
	if n := evaluate[int](t, p, `document.querySelectorAll("*").length`); n > 8000 {
		t.Errorf("%d elements", n)
	}
	// No two marks overlap, and a sector is wide enough to be seen.
	if near := evaluate[float64](t, p, `(() => {
		const at = [...document.querySelectorAll("#ring svg.ring g.mark")].map(m => { const r = m.getBoundingClientRect(); return [r.x + r.width/2, r.y + r.height/2]; });
		let least = 1e9;
		at.forEach(([x, y], i) => at.slice(i + 1).forEach(([u, v]) => least = Math.min(least, Math.hypot(x - u, y - v))));
		return least;
	})()`); near < 6 {
		t.Errorf("two marks are %.1f pixels apart", near)
	}
	if wide := evaluate[float64](t, p, `Math.min(...[...document.querySelectorAll("#ring path.sector")].map(s => Math.hypot(s.getBBox().width, s.getBBox().height)))`); wide < 5 {
		t.Errorf("a sector is %.1f wide", wide)
	}
	picture(t, p, "thousands")
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// A page stays open over an upgrade, and an address can become that of another member.
func TestThePageIsLoadedAgainWhenAnotherProcessAnswers(t *testing.T) {
	b := startBrowser(t)
	handlerOf := func(d statuspage.Document) *http.ServeMux {
		mux := http.NewServeMux()
		statuspage.Handle(mux, statuspage.Config{Document: func(context.Context, string) statuspage.Document { return d }, Registerer: prometheus.NewRegistry()})
		return mux
	}
	var handler atomic.Pointer[http.ServeMux]
	one := handlerOf(statuspage.Document{ID: "relay-1", Role: "relay", Build: "v1.0.0"})
	handler.Store(one)
	first, end := context.WithCancel(context.Background()) // of its streams: a connection that breaks would be an error of the page
	t.Cleanup(end)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := handler.Load()
		if h == one && r.URL.Path == "/events" {
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			defer context.AfterFunc(first, cancel)()
			r = r.WithContext(ctx)
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	p := tab(t, b, browser.TabConfig{}, server.URL+"/?all=1")
	await(t, p, "the page is live", live)
	evaluate[bool](t, p, `(window.mine = "kept", true)`)
	handler.Store(handlerOf(statuspage.Document{ID: "relay-2", Role: "gate", Build: "v1.1.0"}))
	end()
	await(t, p, "the page is that of the other process", `document.querySelector("h1 .name").textContent === "relay-2" && location.search === "?all=1"`)
	await(t, p, "the page is live", live)
	if evaluate[bool](t, p, `window.mine === "kept"`) {
		t.Error("the page was not loaded again")
	}
}
