package router_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/fleet"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/relay/clienttls/clienttlstest"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/selection"
	"github.com/ringway/ringway/selection/router"
)

func TestAPickIsAnEndpointThatWorksAndNextIsAnother(t *testing.T) {
	t.Parallel()
	c := startCluster(t, fleet.Config{Insecure: true})
	c.relay("relay-1", nil)
	c.workers("echo", &moody{name: "echo-0"}, &moody{name: "echo-1"}, &moody{name: "echo-2"})
	r := c.router("relay-2", nil)
	c.knows(r, "echo", "echo-0", "echo-1", "echo-2")
	pick, err := r.Pick(t.Context(), "echo", "")
	if err != nil {
		t.Fatal(err)
	}
	picked := map[string]bool{}
	for {
		resp, err := http.Get("http://" + pick.Address())
		if err != nil || resp.Header.Get("X-Worker") != pick.Endpoint().NodeID {
			t.Fatalf("%v: %v", resp, err)
		}
		_ = resp.Body.Close()
		pick.Answered(selection.Success)
		picked[pick.Address()] = true
		if pick, err = pick.Next(selection.Failure); err != nil {
			if !errors.Is(err, selection.ErrNoEndpoint) {
				t.Error(err)
			}
			break
		}
	}
	if len(picked) != 3 {
		t.Errorf("a request that is repeated reached %d of 3 workers", len(picked))
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestAnEndpointThatFailsIsPickedRarelyAndComesBack(t *testing.T) {
	t.Parallel()
	c := startCluster(t, fleet.Config{Insecure: true})
	c.relay("relay-1", nil)
	handlers := make([]http.Handler, 6)
	for i := range handlers {
		handlers[i] = &moody{name: "echo-" + string(rune('0'+i))}
	}
	c.workers("echo", handlers...)
	r := c.router("relay-2", nil)
	c.knows(r, "echo", "echo-0", "echo-1", "echo-2", "echo-3", "echo-4", "echo-5")
	picks := func(outcome selection.Outcome) (n int) {
		for range 3000 {
			pick, err := r.Pick(t.Context(), "echo", "")
			if err != nil {
				t.Fatal(err)
			}
			if pick.Endpoint().NodeID == "echo-0" {
				n++
				pick.Done(outcome)
			}
			pick.Done(selection.Success) // only the first call counts
		}
		return n
	}
	if n := picks(selection.Failure); n > 30 {
		t.Errorf("an endpoint that fails got %d of 3000 requests", n)
	}
	procs.Await(t, "an endpoint that works again gets requests", func() bool { return picks(selection.Success) > 0 })
}

func TestARelayThatDoesNotServeNamesThoseThatDo(t *testing.T) {
	t.Parallel()
	c := startCluster(t, fleet.Config{Insecure: true})
	c.relay("relay-1", nil)
	c.workers("echo", &moody{name: "echo-0"})
	r := c.router("gate-1", func(m *membership.Config, _ *router.Config) { m.Role = identity.RoleGate })
	c.knows(r, "echo", "echo-0")
	_, err := r.Pick(t.Context(), "echo", "")
	if !errors.Is(err, router.ErrElsewhere) || !strings.Contains(err.Error(), "relay-1") {
		t.Error(err)
	}
}

func TestAStrategyIsThatOfTheProgram(t *testing.T) {
	t.Parallel()
	c := startCluster(t, fleet.Config{Insecure: true})
	c.relay("relay-1", nil)
	c.workers("echo", &moody{name: "echo-0"}, &moody{name: "echo-1"}, &moody{name: "echo-2"})
	for name, service := range map[string]string{"one service": "echo", "all services": ""} {
		r := c.router("relay-"+strings.ReplaceAll(name, " ", "-"), func(_ *membership.Config, cfg *router.Config) {
			cfg.Strategies = map[string]string{service: "stable;bound=100"} // a request that has just ended may still count
		})
		c.knows(r, "echo", "echo-0", "echo-1", "echo-2")
		for _, key := range []string{"alice", "bob", "carol"} {
			seen := map[string]bool{}
			for range 50 {
				pick, err := r.Pick(t.Context(), "echo", key)
				if err != nil {
					t.Fatal(err)
				}
				seen[pick.Endpoint().NodeID] = true
				pick.Done(selection.Success)
			}
			header, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://echo/", nil)
			header.Header.Set("Ringway-Key", key)
			of, _ := http.NewRequestWithContext(router.WithKey(t.Context(), key), http.MethodGet, "http://echo/", nil)
			of.Header.Set("Ringway-Key", "another") // the context counts
			for _, req := range []*http.Request{header, of} {
				resp, err := r.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				seen[resp.Header.Get("X-Worker")] = true
				_ = resp.Body.Close()
			}
			if of.Header.Get("Ringway-Key") != "another" {
				t.Error("RoundTrip has changed the request of the program")
			}
			if len(seen) != 1 {
				t.Errorf("%s: the requests with the key %q went to %v", name, key, seen)
			}
		}
	}
}

func TestAConfigurationThatCannotWorkIsRefused(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*membership.Config, *router.Config){
		"no Node":                         func(*membership.Config, *router.Config) {},
		"is a worker":                     func(m *membership.Config, _ *router.Config) { m.Role = identity.RoleWorker },
		"RequestTimeout -1ns is negative": func(_ *membership.Config, cfg *router.Config) { cfg.RequestTimeout = -1 },
		"listen for other relays":         func(_ *membership.Config, cfg *router.Config) { cfg.PeerAddr = "256.0.0.1:1" },
		"min peers per worker 1": func(_ *membership.Config, cfg *router.Config) {
			cfg.Plan.Minimums = affinity.Minimums{PeersPerWorker: 1, PeersPerRelay: 1}
		},
		"is an observer, to which nothing connects": func(m *membership.Config, cfg *router.Config) {
			m.Role, m.ForwardAddr, cfg.PeerAddr = identity.RoleObserver, "", "127.0.0.1:1"
		},
		"Endpoints -1 of the observer": func(m *membership.Config, cfg *router.Config) {
			m.Role, m.ForwardAddr, cfg.Endpoints = identity.RoleObserver, "", -1
		},
		"RequireServiceNames, and the node": func(_ *membership.Config, cfg *router.Config) { cfg.RequireServiceNames = true },
		"with which no certificate names services": func(m *membership.Config, cfg *router.Config) {
			m.Identity, cfg.RequireServiceNames = spiffeSource(t), true
		},
		"Endpoints 5 of the relay":                   func(_ *membership.Config, cfg *router.Config) { cfg.Endpoints = 5 },
		"has the role of a relay and no ForwardAddr": func(m *membership.Config, _ *router.Config) { m.ForwardAddr = "" },
		"other relays forward requests to 127.0.0.1:1": func(m *membership.Config, cfg *router.Config) {
			m.ForwardAddr, cfg.PickOnly = "127.0.0.1:1", true
		},
		`strategy of the service "echo"`: func(_ *membership.Config, cfg *router.Config) {
			cfg.Strategies = map[string]string{"echo": "best"}
		},
		`strategy of the service "a b"`: func(_ *membership.Config, cfg *router.Config) {
			cfg.Strategies = map[string]string{"a b": "stable"}
		},
		`policy of the service "a b"`: func(_ *membership.Config, cfg *router.Config) {
			cfg.Policies = map[string]advertise.Policy{"a b": {}}
		},
		"want a duration from 1ms": func(_ *membership.Config, cfg *router.Config) {
			cfg.Policies = map[string]advertise.Policy{"": {RequestTimeout: -time.Second}}
		},
		"want never, connect, idempotent or always": func(_ *membership.Config, cfg *router.Config) {
			cfg.Policies = map[string]advertise.Policy{"echo": {Retry: "often"}}
		},
		"retry always: only for a single service": func(_ *membership.Config, cfg *router.Config) {
			cfg.Policies = map[string]advertise.Policy{"": {Retry: advertise.RetryAlways}}
		},
		"SessionCookie: leave it empty": func(_ *membership.Config, cfg *router.Config) {
			cfg.Policies = map[string]advertise.Policy{"echo": {SessionCookie: "sid"}}
		},
	} {
		member := membership.Config{Cluster: "shop", Environment: "dev", ID: "r", Role: identity.RoleRelay, BindAddr: "127.0.0.1:0", ForwardAddr: procs.FreeAddr(t)}
		var cfg router.Config
		change(&member, &cfg)
		node, err := membership.New(member)
		if err != nil {
			t.Fatal(err)
		}
		if cfg.Node = node; want == "no Node" {
			cfg.Node = nil
		}
		r, err := router.New(cfg)
		if err == nil {
			_ = r.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
		_ = node.Close()
	}
}

// spiffeSource is the identity of the relay r by a SPIFFE ID.
func spiffeSource(t *testing.T) *identity.Source {
	t.Helper()
	ca := clienttlstest.New(t)
	cert, key := ca.Issue(clienttlstest.Certificate{URI: "spiffe://shop.test/dev/shop/relay/r"})
	s, err := identity.NewStaticSource(identity.PEM{Certificate: cert, Key: key, Authorities: ca.PEM()}, identity.SourceConfig{Template: "spiffe://shop.test/{environment}/{cluster}/{role}/{node}"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAStopWaitsForRequestsInFlight(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan struct{}), make(chan struct{})
	c := startCluster(t, fleet.Config{})
	c.relay("relay-1", nil)
	c.workers("echo", same(1, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			close(arrived)
			<-release
		}
	})...)
	r := c.router("relay-2", nil)
	c.knows(r, "echo")
	status := make(chan int, 1)
	go func() {
		req, _ := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://echo/wait", nil)
		resp, err := r.RoundTrip(req)
		if err != nil {
			t.Error(err)
			status <- 0
			return
		}
		_ = resp.Body.Close()
		status <- resp.StatusCode
	}()
	<-arrived
	r.stop()
	select {
	case err := <-r.done:
		t.Fatalf("Run returned with a request in flight: %v", err)
	case <-time.After(1500 * time.Millisecond): // longer than to leave the cluster
	}
	close(release)
	if got := <-status; got != http.StatusOK {
		t.Errorf("the request in flight got %d", got)
	}
}

func TestTheTimeoutsAreThoseOfTheProgram(t *testing.T) {
	t.Parallel()
	c := startCluster(t, fleet.Config{Insecure: true})
	c.relay("relay-1", nil)
	var first atomic.Pointer[string] // the request that hangs at the first worker that gets it
	named := func(name string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Worker", name)
			if id := r.Header.Get("X-Id"); id != "" && first.Swap(&id) == nil {
				<-r.Context().Done()
			}
		}
	}
	c.workers("echo", named("echo-0"), named("echo-1"))
	for _, each := range []struct {
		name             string
		request, attempt time.Duration
		want             error
	}{
		{"short", 30 * time.Second, 2 * time.Second, nil},
		{"long", 3 * time.Second, time.Hour, context.DeadlineExceeded},
	} {
		r := c.router("relay-"+each.name, func(_ *membership.Config, cfg *router.Config) {
			cfg.RequestTimeout, cfg.AttemptTimeout = each.request, each.attempt
		})
		c.knows(r, "echo", "echo-0", "echo-1")
		first.Store(nil)
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://echo/", nil)
		req.Header.Set("X-Id", each.name)
		resp, err := r.RoundTrip(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		if !errors.Is(err, each.want) {
			t.Errorf("an attempt of %v: %v, want %v", each.attempt, err, each.want)
		}
	}
}

func TestADrainEndsWhatOutlivesIt(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{})
	c := startCluster(t, fleet.Config{Insecure: true})
	c.relay("relay-1", nil)
	c.workers("echo", same(1, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hang" {
			close(arrived)
			<-r.Context().Done()
		}
	})...)
	r := c.router("relay-2", func(_ *membership.Config, cfg *router.Config) { cfg.DrainTimeout = 100 * time.Millisecond })
	c.knows(r, "echo")
	ended := make(chan error, 1)
	go func() {
		req, _ := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://echo/hang", nil)
		_, err := r.RoundTrip(req)
		ended <- err
	}()
	<-arrived
	r.stop()
	for name, done := range map[string]chan error{"the request": ended, "Run": r.done} {
		select {
		case err := <-done:
			if (err == nil) != (name == "Run") {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(waitTime / 2): // less than the request timeout
			t.Errorf("%s does not end", name)
		}
	}
}

func TestMetricsAreThoseOfOneRouterAtATime(t *testing.T) {
	t.Parallel()
	all := prometheus.NewRegistry()
	open := func() (*router.Router, *membership.Node, error) {
		node, err := membership.New(membership.Config{Cluster: "shop", Environment: "dev", ID: "r", Role: identity.RoleRelay, BindAddr: "127.0.0.1:0", ForwardAddr: procs.FreeAddr(t)})
		if err != nil {
			t.Fatal(err)
		}
		r, err := router.New(router.Config{Node: node, Registerer: all})
		return r, node, err
	}
	first, _, err := open()
	if err != nil {
		t.Fatal(err)
	}
	families, err := all.Gather()
	for _, name := range []string{"ringway_relay_route_updates_total", "ringway_selection_evictions_total"} {
		if err != nil || !slices.ContainsFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == name }) {
			t.Errorf("no %s in %d families: %v", name, len(families), err)
		}
	}
	if _, node, err := open(); err == nil || !strings.Contains(err.Error(), "a Registerer of its own") {
		t.Errorf("a second router: %v", err)
	} else if err := node.Close(); err != nil {
		t.Error(err)
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	again, _, err := open()
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}
