package routing

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/ring"
	"github.com/ringway/ringway/selection"
)

func TestWhileCutOffWhatFailedStaysAndWhatLeftIsGone(t *testing.T) {
	departed := func(id string, reason membership.Reason) membership.Departure {
		return membership.Departure{Member: membership.Member{ID: id}, Reason: reason, At: time.Unix(0, 0)}
	}
	s := membership.NewSnapshot(1, "r1", []membership.Member{{ID: "r1"}}).WithDepartures([]membership.Departure{
		departed("r2", membership.Failed), departed("r3", membership.Left), departed("w1", membership.Failed), departed("w2", membership.Left),
	}, true)

	relays := keepFailedRelays([]membership.Member{{ID: "r2"}, {ID: "r3"}, {ID: "r1"}}, []membership.Member{{ID: "r1"}, {ID: "r0"}}, s)
	if got := membership.IDs(relays); !slices.Equal(got, []string{"r0", "r1", "r2"}) {
		t.Errorf("relays %v", got)
	}

	of := func(ids ...string) (out []*advertise.Endpoint) {
		for _, id := range ids {
			out = append(out, &advertise.Endpoint{Worker: &advertise.Worker{NodeID: id}})
		}
		return out
	}
	ids := func(endpoints []*advertise.Endpoint) (out []string) {
		for _, e := range endpoints {
			out = append(out, e.NodeID)
		}
		return out
	}
	nothing := new(advertise.View).Endpoints("echo")
	if got := ids(failedEndpoints(of("w1", "w2", "w4"), nothing, s)); !slices.Equal(got, []string{"w1"}) {
		t.Errorf("kept %v, want w1 alone: it failed, w2 left, w4 withdrew", got)
	}
	if got, want := ids(inRingOrder("echo", of("w1", "w3", "w5"))), ring.Order("echo", []string{"w1", "w3", "w5"}); !slices.Equal(got, want) {
		t.Errorf("endpoints %v, want %v", got, want)
	}
}

// cutOff returns a router whose gossip is cut off from the workers w1, w2, … of echo, and which has a
// pool for each.
func cutOff(t *testing.T, workers ...net.Listener) (*Router, []*advertise.Endpoint) {
	t.Helper()
	pools := newPools(func(key poolKey) (*upstream.Pool, error) {
		return upstream.NewPool(upstream.Config{Address: key.address})
	})
	r := &Router{pools: pools, kept: newKeptChecks(), view: new(advertise.View)}
	var departures []membership.Departure
	var endpoints []*advertise.Endpoint
	for i, l := range workers {
		e := &advertise.Endpoint{Worker: &advertise.Worker{NodeID: fmt.Sprint("w", i+1)}}
		e.Address, e.Protocol = l.Addr().String(), advertise.HTTP1
		p, err := pools.hold(r.cfg.endpointKey(e))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		endpoints = append(endpoints, e)
		departures = append(departures, membership.Departure{Member: membership.Member{ID: e.NodeID}, Reason: membership.Failed, At: time.Unix(0, 0)})
	}
	service, err := NewService("echo", selection.DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	if err := service.SetRoute(&Route{Endpoints: endpoints}, 0); err != nil {
		t.Fatal(err)
	}
	r.services.Store(&map[string]*Service{"echo": service})
	r.snapshot = membership.NewSnapshot(1, "r1", []membership.Member{{ID: "r1"}}).WithDepartures(departures, true)
	return r, endpoints
}

// listen returns a listener at an address that no other program takes after its close.
func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", procs.FreeAddr(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// check plays a round of checks, and returns how often the routes were to be computed, and which of
// the endpoints are unreachable.
func (r *Router) check(t *testing.T, endpoints []*advertise.Endpoint) (changed int, unreachable []string) {
	r.checkKept(t.Context())
	for len(r.kept.open) > 0 {
		if r.endCheck(<-r.kept.ended) {
			changed++
		}
		r.nextChecks(t.Context())
	}
	for _, e := range r.markDead(slices.Clone(endpoints)) {
		if e.Unreachable {
			unreachable = append(unreachable, e.NodeID)
		}
	}
	return changed, unreachable
}

// Half of the members are on the other side of a partition; w1 is on this side and dies.
func TestWhileCutOffAFailedWorkerThatAcceptsNoConnectionGetsNoRequests(t *testing.T) {
	asked, release := make(chan struct{}), make(chan struct{})
	hangs := func() *httptest.Server {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked <- struct{}{}; <-release }))
		_ = s.Listener.Close()
		s.Listener = listen(t)
		s.Start()
		t.Cleanup(s.Close)
		return s
	}
	w1, w2 := hangs(), hangs()
	r, endpoints := cutOff(t, w1.Listener, w2.Listener)
	var requests []<-chan *upstream.Fault
	for _, e := range endpoints {
		requests = append(requests, waiting(t, r.pools.get(r.cfg.endpointKey(e))))
		<-asked
	}
	_ = w1.Listener.Close() // its connection stays, as that of a host that is gone

	for range 2 {
		if _, unreachable := r.check(t, endpoints); !slices.Equal(unreachable, []string{"w1"}) {
			t.Errorf("unreachable are %v, want w1", unreachable)
		}
	}
	if err := <-requests[0]; !errors.Is(err, upstream.ErrAbandoned) {
		t.Errorf("the request to w1: %v", err)
	}
	select {
	case err := <-requests[1]:
		t.Errorf("the request to w2 ended: %v", err)
	default:
	}
	if changed, _ := r.check(t, endpoints); changed != 0 {
		t.Errorf("routes are computed %d times although nothing has changed", changed)
	}
	r.pools.release(r.cfg.endpointKey(endpoints[0])) // as its link, which has no connection
	back, err := net.Listen("tcp", w1.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer back.Close()
	defer close(release)
	if changed, unreachable := r.check(t, endpoints); changed != 1 || len(unreachable) > 0 {
		t.Errorf("when w1 accepts connections: %d changes, unreachable %v", changed, unreachable)
	}
	if r.pools.get(r.cfg.endpointKey(endpoints[0])) != nil {
		t.Error("the pool of w1 is held for a check that it does not need")
	}
}

func TestWhileCutOffEveryKeptWorkerHasItsTurn(t *testing.T) {
	var workers []net.Listener
	for range 2*checksAtOnce + 3 {
		workers = append(workers, listen(t))
	}
	r, endpoints := cutOff(t, workers...)
	last := endpoints[len(endpoints)-1]
	_ = workers[len(workers)-1].Close()
	if changed, unreachable := r.check(t, endpoints); changed != 1 || !slices.Equal(unreachable, []string{last.NodeID}) {
		t.Errorf("%d changes, unreachable are %v, want %s", changed, unreachable, last.NodeID)
	}
	if last.Unreachable {
		t.Error("the record of the worker itself was marked: its other services are reached at other addresses")
	}
	r.snapshot = membership.NewSnapshot(2, "r1", []membership.Member{{ID: "r1"}})
	r.reviveAll()
	if _, unreachable := r.check(t, endpoints); len(unreachable) > 0 {
		t.Errorf("after the cut %v are unreachable", unreachable)
	}
}

func TestWhileCutOffWhatWasOutOfReachBeforeStaysSoUntilACheckConnects(t *testing.T) {
	w1 := listen(t)
	r, endpoints := cutOff(t, w1, procs.Listen(t))
	out := *endpoints[0].Worker
	out.Unreachable = true
	endpoints[0] = &advertise.Endpoint{Service: endpoints[0].Service, Worker: &out}
	r.pools.release(r.cfg.endpointKey(endpoints[0])) // it is in no range
	for range 2 {
		if kept := r.markDead(slices.Clone(endpoints)); !kept[0].Unreachable || kept[1].Unreachable {
			t.Errorf("unreachable are w1 %t and w2 %t, want w1", kept[0].Unreachable, kept[1].Unreachable)
		}
	}
	_ = w1.Close()
	if _, unreachable := r.check(t, endpoints); !slices.Equal(unreachable, []string{"w1"}) {
		t.Errorf("after a check %v are unreachable, want w1", unreachable)
	}
	back, err := net.Listen("tcp", w1.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer back.Close()
	for range 2 {
		if _, unreachable := r.check(t, endpoints); len(unreachable) > 0 {
			t.Errorf("%v are unreachable, which a check has connected to", unreachable)
		}
	}
}
