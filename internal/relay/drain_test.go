package relay

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/membership"
)

// post sends an empty POST to a path of the admin API and decodes nothing.
func (r *runningRelay) post(t *testing.T, path string) (status int, text string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.AdminAddr()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, text := do(t, req)
	return resp.StatusCode, text
}

func TestADrainedRelayIsNotReadyAndStillCarriesRequests(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(*Settings) {})
	f.echo("w1")
	r.settled(t, "echo", 1)
	// Kept connections are what a drain is about: not those of do, which ends each.
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	ask := func() *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.IngressAddr()+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Ringway-Service", "echo")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("%s, %v", resp.Status, err)
		}
		return resp
	}
	drained := func(want string) {
		t.Helper()
		if err := testutil.GatherAndCompare(r.cfg.Registry, strings.NewReader(`
			# HELP ringway_relay_drained 1 while an operator has taken this relay out of rotation, 0 otherwise.
			# TYPE ringway_relay_drained gauge
			ringway_relay_drained `+want+"\n"), "ringway_relay_drained"); err != nil {
			t.Error(err)
		}
	}

	if ask().Close {
		t.Error("a relay that is not drained closes connections")
	}
	drained("0")
	for range 2 { // a second drain is no other
		if status, text := r.post(t, "/api/v1/drain"); status != http.StatusOK || !strings.Contains(text, `"draining": true`) {
			t.Fatalf("%d %s", status, text)
		}
	}
	if status, text := r.api(t, "/readyz", nil); status != http.StatusServiceUnavailable || !strings.Contains(text, `"draining"`) {
		t.Errorf("%d %s", status, text)
	}
	if status, _ := r.api(t, "/healthz", nil); status != http.StatusOK {
		t.Errorf("a drained relay is to be killed: %d", status)
	}
	if !ask().Close {
		t.Error("a drained relay keeps the connections of its clients")
	}
	drained("1")
	if s, _ := r.Routes.Service("echo"); !s.Route().Affine() {
		t.Error("a drained relay has left its range")
	}
	if status, text := r.post(t, "/api/v1/undrain"); status != http.StatusOK || !strings.Contains(text, `"draining": false`) || strings.Contains(text, "since") {
		t.Errorf("%d %s", status, text)
	}
	if status, text := r.api(t, "/readyz", nil); status != http.StatusOK {
		t.Errorf("%d %s", status, text)
	}
	if ask().Close {
		t.Error("an undrained relay closes connections")
	}
	drained("0")
}

func TestADrainedRelayIsDrainingForTheOthersAndKeepsThePlan(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r1, r2 := f.relay(func(*Settings) {}), f.relay(func(*Settings) {})
	f.echo("w1")
	for _, r := range []*runningRelay{r1, r2} {
		r.settled(t, "echo", 1)
	}
	plan := func(r *runningRelay) uint64 {
		s, _ := r.Routes.Service("echo")
		return s.Route().PlanVersion()
	}
	r2.await(t, "one plan of both relays", func() bool { return len(r2.members.Snapshot().Members()) == 3 && plan(r1) == plan(r2) })
	before := plan(r2)
	for _, on := range []bool{true, false} {
		if status, text := r1.post(t, map[bool]string{true: "/api/v1/drain", false: "/api/v1/undrain"}[on]); status != http.StatusOK {
			t.Fatalf("%d %s", status, text)
		}
		r2.await(t, fmt.Sprintf("draining: %t", on), func() bool {
			var seen api.Members
			r2.api(t, "/api/v1/members", &seen)
			i := slices.IndexFunc(seen.Members, func(m membership.Member) bool { return m.ID == "r1" })
			return i >= 0 && seen.Members[i].Draining == on
		})
		if got := plan(r2); got != before {
			t.Errorf("draining: %t has changed the plan from %x to %x", on, before, got)
		}
	}
}

func TestADrainIsAPOST(t *testing.T) {
	t.Parallel()
	r := newFleet(t).relay(func(*Settings) {})
	for _, path := range []string{"/api/v1/drain", "/api/v1/undrain", "/api/v1/reload"} {
		if status, _ := r.api(t, path, nil); status != http.StatusMethodNotAllowed {
			t.Errorf("GET %s: %d", path, status)
		}
	}
	if len(r.Reasons()) > 0 && slices.ContainsFunc(r.Reasons(), func(r process.Reason) bool { return r.Code == process.Draining }) {
		t.Error("a GET has drained the relay")
	}
}

// A client that offers an upgrade which no answer takes, as curl --http2 and Java do, must leave as well.
func TestOnlyATunnelKeepsItsConnectionHeader(t *testing.T) {
	f := front{closing: func() bool { return true }}
	f.serve(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, c := range []struct{ upgrade, connection, want string }{
		{"", "", "close"},
		{"websocket", "Upgrade", ""},
		{"websocket", "", "close"},
		{"h2c", "Upgrade, HTTP2-Settings", "close"},
	} {
		req, w := httptest.NewRequest(http.MethodGet, "/", nil), httptest.NewRecorder()
		for name, value := range map[string]string{"Upgrade": c.upgrade, "Connection": c.connection} {
			if value != "" {
				req.Header.Set(name, value)
			}
		}
		if f.ServeHTTP(w, req); w.Header().Get("Connection") != c.want {
			t.Errorf("upgrade %q with %q: Connection %q, want %q", c.upgrade, c.connection, w.Header().Get("Connection"), c.want)
		}
	}
}
