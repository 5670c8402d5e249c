package routing

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/ringway/ringway/advertise"
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

// Half of the members are on the other side of a partition; w1 is on this side and dies.
func TestWhileCutOffAFailedWorkerThatAcceptsNoConnectionGetsNoRequests(t *testing.T) {
	asked, release := make(chan struct{}), make(chan struct{})
	hangs := func() *httptest.Server {
		s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked <- struct{}{}; <-release }))
		t.Cleanup(s.Close)
		return s
	}
	owner := newPools(func(key poolKey) (*upstream.Pool, error) {
		return upstream.NewPool(upstream.Config{Address: key.address})
	})
	r := &Router{pools: owner, kept: newKeptChecks(), view: new(advertise.View)}
	service, err := NewService("echo", selection.DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	servers, requests, route := map[string]*httptest.Server{}, map[string]<-chan *upstream.Fault{}, &Route{}
	var departures []membership.Departure
	for _, id := range []string{"w1", "w2"} {
		servers[id] = hangs()
		e := &advertise.Endpoint{Worker: &advertise.Worker{NodeID: id}}
		e.Address, e.Protocol = servers[id].Listener.Addr().String(), advertise.HTTP1
		p, err := owner.hold(r.cfg.endpointKey(e))
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		requests[id] = waiting(t, p)
		<-asked
		route.Endpoints = append(route.Endpoints, e)
		departures = append(departures, membership.Departure{Member: membership.Member{ID: id}, Reason: membership.Failed, At: time.Unix(0, 0)})
	}
	if err := service.SetRoute(route, 0); err != nil {
		t.Fatal(err)
	}
	r.services.Store(&map[string]*Service{"echo": service})
	r.snapshot = membership.NewSnapshot(1, "r1", []membership.Member{{ID: "r1"}}).WithDepartures(departures, true)
	_ = servers["w1"].Listener.Close() // its connection stays, as that of a host that is gone

	check := func() (changed int, unreachable []string) {
		r.checkKept(t.Context())
		for range len(r.kept.open) {
			if r.endCheck(<-r.kept.ended) {
				changed++
			}
		}
		for _, e := range r.markDead(slices.Clone(route.Endpoints)) {
			if e.Unreachable {
				unreachable = append(unreachable, e.NodeID)
			}
		}
		return changed, unreachable
	}
	for range 2 {
		if _, unreachable := check(); !slices.Equal(unreachable, []string{"w1"}) {
			t.Errorf("unreachable are %v, want w1", unreachable)
		}
	}
	if err := <-requests["w1"]; !errors.Is(err, upstream.ErrAbandoned) {
		t.Errorf("the request to w1: %v", err)
	}
	select {
	case err := <-requests["w2"]:
		t.Errorf("the request to w2 ended: %v", err)
	default:
	}
	if changed, _ := check(); changed != 0 {
		t.Errorf("routes are computed %d times although nothing has changed", changed)
	}
	back, err := net.Listen("tcp", servers["w1"].Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer back.Close()
	defer close(release)
	if changed, unreachable := check(); changed != 1 || len(unreachable) > 0 {
		t.Errorf("when w1 accepts connections: %d changes, unreachable %v", changed, unreachable)
	}
}
