package routing

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/selection"
)

// waiting is a request to a target that does not answer.
func waiting(t *testing.T, p *upstream.Pool) <-chan *upstream.Fault {
	t.Helper()
	ended := make(chan *upstream.Fault, 1)
	go func() {
		_, err := p.Carry(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil), &upstream.Options{Deadline: time.Now().Add(30 * time.Second)})
		ended <- err
	}()
	return ended
}

func TestAttemptsOnAMemberThatHasFailedEndAndOthersDoNot(t *testing.T) {
	asked, release := make(chan struct{}), make(chan struct{})
	hangs := func() *httptest.Server {
		s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			asked <- struct{}{}
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}))
		t.Cleanup(s.Close)
		return s
	}
	open := func(key poolKey) (*upstream.Pool, error) {
		return upstream.NewPool(upstream.Config{Address: key.address})
	}
	owner := newPools(open)
	r := &Router{pools: owner, links: &links{pools: owner, held: map[poolKey]*upstream.Pool{}, nodes: map[poolKey][]string{}}}
	service, err := NewService("echo", selection.DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	route := &Route{}
	shared := hangs().Listener.Addr().String()
	var out *Target // it has left the range with a request
	for node, address := range map[string]string{"fails": hangs().Listener.Addr().String(), "fails-out": hangs().Listener.Addr().String(), "leaves": hangs().Listener.Addr().String(), "stays": shared, "fails-too": shared} {
		target, err := r.target(node, 1, poolKey{address: address, protocol: advertise.HTTP1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(target.Pool.Close)
		target.Weight = 1
		if node == "fails-out" {
			out = target
			continue
		}
		route.Range = append(route.Range, target)
	}
	for _, target := range route.Range { // a worker that has moved since was there before
		if target.Node == "fails" {
			if _, err := r.links.pool(target.key, "stays"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := service.SetRoute(route, 0); err != nil {
		t.Fatal(err)
	}
	r.services.Store(&map[string]*Service{"echo": service})
	requests := map[string]<-chan *upstream.Fault{}
	for _, target := range append(slices.Clone(route.Range), out) {
		requests[target.Node] = waiting(t, target.Pool)
		<-asked
	}
	relay, err := owner.hold(relayKey(hangs().Listener.Addr().String(), advertise.HTTP1, "relay"))
	if err != nil {
		t.Fatal(err)
	}
	defer relay.Close()
	requests["relay"] = waiting(t, relay)
	<-asked

	members := []membership.Member{{ID: "fails"}, {ID: "fails-out"}, {ID: "fails-too"}, {ID: "leaves"}, {ID: "r1"}, {ID: "relay"}, {ID: "stays"}}
	r.snapshot = membership.NewSnapshot(1, "r1", members)
	left := []membership.Departure{{Member: membership.Member{ID: "leaves"}, Reason: membership.Left, At: time.Unix(0, 0)}}
	rest := []membership.Member{{ID: "r1"}, {ID: "stays"}}
	if got := r.failedPools(); len(got) != 0 {
		t.Errorf("%d of the first snapshot", len(got))
	}
	r.snapshot = membership.NewSnapshot(2, "r1", rest).WithDepartures(left, true)
	if got := r.failedPools(); len(got) != 0 {
		t.Errorf("%d while this relay may be cut off", len(got))
	}
	r.snapshot = membership.NewSnapshot(3, "r1", rest).WithDepartures(left, false)
	for _, p := range r.failedPools() {
		p.Abandon()
	}
	for _, node := range []string{"fails", "fails-out", "relay"} {
		if err := <-requests[node]; !errors.Is(err, upstream.ErrAbandoned) {
			t.Errorf("%s: %v", node, err)
		}
	}
	if got := r.failedPools(); len(got) != 0 {
		t.Errorf("%d again", len(got))
	}
	close(release)
	for _, node := range []string{"leaves", "stays", "fails-too"} {
		if err := <-requests[node]; err != nil {
			t.Errorf("%s: %v", node, err)
		}
	}
}
