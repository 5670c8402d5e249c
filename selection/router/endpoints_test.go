package router_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/ringwaytest"
	"github.com/ringway/ringway/selection"
	"github.com/ringway/ringway/selection/router"
)

// inMemory is a fleet without sockets, for what needs no binary.
type inMemory struct {
	*ringwaytest.Fleet
	t *testing.T
}

func bubble(t *testing.T, test func(t *testing.T, f inMemory)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { test(t, inMemory{ringwaytest.New(t), t}) })
}

// run runs a program until stop or the end of the test.
func (f inMemory) run(program func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- program(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			f.t.Error(err)
		}
	})
	f.t.Cleanup(stop)
	return stop
}

// router starts a router with some role.
func (f inMemory) router(id string, role identity.Role, cfg router.Config) *router.Router {
	f.t.Helper()
	member := f.Member(id, role)
	if cfg.PickOnly {
		member.ForwardAddr = ""
	}
	var err error
	if cfg.Node, err = membership.New(member); err != nil {
		f.t.Fatal(err)
	}
	r, err := router.New(cfg)
	if err != nil {
		f.t.Fatal(err)
	}
	f.run(r.Run)
	return r
}

// offer is a program that offers echo, and only counts the connections to it.
type offer struct {
	*advertise.Advertiser
	service     advertise.Service
	leave       func()
	connections atomic.Int64
}

func (f inMemory) offer(id string) *offer {
	f.t.Helper()
	cfg, socket := f.Advertiser(id, "echo")
	cfg.DrainDelay = time.Millisecond
	o := &offer{service: cfg.Services[0]}
	var err error
	if o.Advertiser, err = advertise.NewAdvertiser(cfg); err != nil {
		f.t.Fatal(err)
	}
	go func() {
		for conn, err := socket.Accept(); err == nil; conn, err = socket.Accept() { // until the fleet ends
			o.connections.Add(1)
			_ = conn.Close()
		}
	}()
	o.leave = f.run(o.Run)
	return o
}

func TestEndpointsFollowAJoinADrainAndALeave(t *testing.T) {
	bubble(t, func(t *testing.T, f inMemory) {
		f.StartRelay("relay-1")
		r := f.router("relay-2", identity.RoleRelay, router.Config{})
		_, appears := r.Endpoints("echo")
		a, b := f.offer("echo-a"), f.offer("echo-b")
		<-appears
		until := func(want ...string) {
			t.Helper()
			follow(t, r, func(ids []string) bool { return slices.Equal(ids, want) })
		}
		until("echo-a", "echo-b")
		b.service.Address = strings.TrimSuffix(b.service.Address, "8080") + "8081"
		if err := b.Set(b.service); err != nil {
			t.Fatal(err)
		}
		follow(t, r, func([]string) bool {
			endpoints, _ := r.Endpoints("echo")
			return slices.ContainsFunc(endpoints, func(e *advertise.Endpoint) bool { return e.Address == b.service.Address })
		})
		a.Drain()
		until("echo-b")
		b.leave()
		until()
	})
}

func TestARouterThatOnlyPicksConnectsToNoWorker(t *testing.T) {
	bubble(t, func(t *testing.T, f inMemory) {
		f.router("gate-1", identity.RoleGate, router.Config{})
		offers := []*offer{f.offer("echo-0"), f.offer("echo-1"), f.offer("echo-2")}
		all := func(ids []string) bool { return len(ids) == len(offers) }
		connected := func(o *offer) bool { return o.connections.Load() > 0 }
		r := f.router("relay-2", identity.RoleRelay, router.Config{PickOnly: true})
		if err := r.WaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		follow(t, r, all)
		picked := map[string]bool{}
		for len(picked) < len(offers) {
			pick, err := r.Pick(t.Context(), "echo", "")
			if err != nil {
				t.Fatal(err)
			}
			picked[pick.Address()] = true
			pick.Done(selection.Success)
			time.Sleep(time.Millisecond) // otherwise no time passes
		}
		req, _ := http.NewRequest(http.MethodGet, "http://echo/", http.NoBody)
		if _, err := r.RoundTrip(req); err == nil || !strings.Contains(err.Error(), "PickOnly") {
			t.Error(err)
		}
		if slices.ContainsFunc(offers, connected) {
			t.Error("it has connected to a worker")
		}
		// The same program without the setting connects to each before it is ready.
		with := f.router("relay-3", identity.RoleRelay, router.Config{})
		follow(t, with, all)
		if err := with.WaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		for i, o := range offers {
			if !connected(o) {
				t.Errorf("without the setting a router does not connect to echo-%d either", i)
			}
		}
	})
}

// A fleet may allow workers to offer services of other hosts, and many of them: a program that is
// configured like its relays has the same endpoints.
func TestARouterUsesTheOffersThatItsFleetAllows(t *testing.T) {
	bubble(t, func(t *testing.T, f inMemory) {
		f.StartRelay("relay-1")
		cfg, _ := f.Advertiser("far", "echo")
		cfg.Services[0].Address = "10.9.0.5:80"
		for i := range 150 {
			service := cfg.Services[0]
			service.Name = fmt.Sprintf("echo-%d", i)
			cfg.Services = append(cfg.Services, service)
		}
		allowed := []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}
		cfg.AllowedAddrs, cfg.MaxServicesPerRecord = allowed, 200
		worker, err := advertise.NewAdvertiser(cfg)
		if err != nil {
			t.Fatal(err)
		}
		f.run(worker.Run)
		like := f.router("caller-1", identity.RoleObserver, router.Config{PickOnly: true, AllowedAddrs: allowed, MaxServicesPerRecord: 200})
		follow(t, like, func(ids []string) bool { return slices.Equal(ids, []string{"far"}) })
		for name, cfg := range map[string]router.Config{
			"addresses": {PickOnly: true, MaxServicesPerRecord: 200}, "many services": {PickOnly: true, AllowedAddrs: allowed},
		} {
			other := f.router("no-"+strings.ReplaceAll(name, " ", "-"), identity.RoleObserver, cfg)
			if err := other.WaitReady(t.Context()); err != nil {
				t.Fatal(err)
			}
			f.Settle()
			if endpoints, _ := other.Endpoints("echo"); len(endpoints) > 0 {
				t.Errorf("a router that does not allow such %s uses %v", name, endpoints)
			}
		}
	})
}

// Programs that only pick outnumber the relays. Most services would have their three places at such
// programs, to which nothing can be forwarded.
func TestProgramsThatOnlyPickTakeNoPlacesOfRelays(t *testing.T) {
	bubble(t, func(t *testing.T, f inMemory) {
		plan := affinity.PlanConfig{RelaysPerService: 3}
		relay := f.router("relay-1", identity.RoleRelay, router.Config{Plan: plan})
		gate := f.router("gate-1", identity.RoleGate, router.Config{Plan: plan})
		services := []string{"a", "b", "c", "d", "e", "f"}
		for _, id := range []string{"w-0", "w-1", "w-2", "w-3"} {
			f.StartWorker(id, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), services...)
		}
		var picking []*router.Router
		for i := range 9 {
			picking = append(picking, f.router(fmt.Sprintf("calls-%d", i), identity.RoleRelay, router.Config{Plan: plan, PickOnly: true}))
		}
		for _, r := range append([]*router.Router{relay, gate}, picking...) {
			if err := r.WaitReady(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute) // until all places are those of the members
		for _, service := range services {
			for name, r := range map[string]*router.Router{"relay": relay, "gate": gate} {
				req, _ := http.NewRequest(http.MethodGet, "http://"+service+"/", http.NoBody)
				resp, err := r.RoundTrip(req)
				if err != nil {
					t.Errorf("%s by the %s: %v", service, name, err)
					continue
				}
				_ = resp.Body.Close()
			}
			for i, r := range picking {
				pick, err := r.Pick(t.Context(), service, "")
				if err != nil {
					t.Errorf("%s by program %d: %v", service, i, err)
					continue
				}
				pick.Done(selection.Success)
			}
		}
	})
}

func TestAPickMovesToANamedWorker(t *testing.T) {
	bubble(t, func(t *testing.T, f inMemory) {
		r := f.StartRelay("relay-1")
		for _, id := range []string{"echo-0", "echo-1", "echo-2"} {
			f.StartWorker(id, http.NotFoundHandler(), "echo")
		}
		f.Settle()
		pick, err := r.Pick(t.Context(), "echo", "")
		if err != nil {
			t.Fatal(err)
		}
		for _, worker := range []string{"echo-0", "echo-2", "echo-1", "echo-0"} {
			if pick, err = pick.NextAt(worker, selection.Cancelled); err != nil {
				t.Fatal(err)
			}
			if got := pick.Endpoint().NodeID; got != worker {
				t.Errorf("a pick at %s is at %s", worker, got)
			}
		}
		if _, err := pick.NextAt("echo-3", selection.Success); !errors.Is(err, selection.ErrNoEndpoint) {
			t.Errorf("a worker that does not exist: %v", err)
		}
	})
}

func TestAnObserverUsesSomeWorkersAndAllWhereTheKeyDecides(t *testing.T) {
	bubble(t, func(t *testing.T, f inMemory) {
		f.StartRelay("relay-1")
		for _, id := range []string{"echo-0", "echo-1", "echo-2", "echo-3", "echo-4"} {
			f.StartWorker(id, http.NotFoundHandler(), "echo")
		}
		some := f.router("caller-1", identity.RoleObserver, router.Config{Endpoints: 2, PickOnly: true})
		all := f.router("caller-2", identity.RoleObserver, router.Config{
			Endpoints: 2, PickOnly: true, Strategies: map[string]string{"echo": "stable"},
		})
		f.Settle()
		follow(t, all, func(ids []string) bool { return len(ids) == 5 })
		var used []string
		follow(t, some, func(ids []string) bool { used = ids; return len(ids) == 2 })
		for range 200 {
			pick, err := some.Pick(t.Context(), "echo", "")
			if err != nil {
				t.Fatal(err)
			}
			if id := pick.Endpoint().NodeID; !slices.Contains(used, id) {
				t.Errorf("a pick of %s, not of %v", id, used)
			}
			pick.Done(selection.Success)
		}
	})
}
