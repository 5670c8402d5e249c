package routing

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/relaypool"
	"github.com/ringway/ringway/membership"
)

// listeningRelay returns the address of a relay.
func listeningRelay(t *testing.T) string {
	t.Helper()
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	server.Config.Protocols = &protocols
	server.Start()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// slowRelay is connections to one relay that are opened when the test asks for it.
func slowRelay(address string) (conns *forwarding, peer relaypool.Peer, dials *atomic.Int64, dialling chan struct{}, proceed chan struct{}) {
	dials, dialling, proceed = &atomic.Int64{}, make(chan struct{}, 8), make(chan struct{})
	owner := newPools(func(key poolKey) (*upstream.Pool, error) {
		return upstream.NewPool(upstream.Config{Address: key.address, Protocol: key.protocol, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			dials.Add(1)
			dialling <- struct{}{}
			select {
			case <-proceed:
				return new(net.Dialer).DialContext(ctx, network, address)
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}})
	})
	conns = &forwarding{pools: owner, holds: map[poolKey]map[*RelayHold]struct{}{}}
	return conns, relaypool.Peer{ID: "r1", Address: address, Instance: "7"}, dials, dialling, proceed
}

type connection struct {
	hop *RelayHold
	err error
}

func (f *forwarding) inBackground(ctx context.Context, peer relaypool.Peer) chan connection {
	got := make(chan connection, 1)
	go func() {
		h, err := f.connect(ctx, peer, func(error) {})
		got <- connection{h, err}
	}()
	return got
}

func TestServicesThatConnectToARelayConcurrentlyShareOneConnectionAndTheLastClosesIt(t *testing.T) {
	conns, peer, dials, dialling, proceed := slowRelay(listeningRelay(t))
	a := conns.inBackground(t.Context(), peer)
	<-dialling
	b := conns.inBackground(t.Context(), peer)
	close(proceed)
	first, second := <-a, <-b
	if first.err != nil || second.err != nil {
		t.Fatal(first.err, second.err)
	}
	shared := first.hop.Target.Pool
	if dials.Load() != 1 || shared != second.hop.Target.Pool || first.hop.Target.ID != "r1.7" {
		t.Errorf("%d dials, targets %+v and %+v", dials.Load(), first.hop.Target, second.hop.Target)
	}
	for i, c := range []connection{first, second} {
		if open := shared.Stats().Open; open != 1 {
			t.Errorf("%d open with %d holds given up", open, i)
		}
		if err := c.hop.Close(); err != nil {
			t.Error(err)
		}
	}
	if shared.Stats().Open != 0 || len(conns.pools.byKey) != 0 || conns.connected() != 0 {
		t.Errorf("still there: %+v", shared.Stats())
	}
}

func TestAServiceThatGivesUpDoesNotCostAnotherTheConnection(t *testing.T) {
	address := listeningRelay(t) // outside of the bubble, which would never be idle with it
	synctest.Test(t, func(t *testing.T) {
		conns, peer, dials, dialling, proceed := slowRelay(address)
		ctx, giveUp := context.WithCancel(t.Context())
		a := conns.inBackground(ctx, peer)
		<-dialling
		b := conns.inBackground(t.Context(), peer)
		synctest.Wait() // both wait
		giveUp()
		if got := <-a; !errors.Is(got.err, context.Canceled) {
			t.Errorf("who gave up: %v", got.err)
		}
		close(proceed)
		got := <-b
		if got.err != nil || dials.Load() != 1 {
			t.Fatalf("the other, after %d dials: %v", dials.Load(), got.err)
		}
		if err := got.hop.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestARelayThatFailedInADegradedViewIsForwardedToAndOneThatVanishedIsNot(t *testing.T) {
	r := &Router{fleet: fleet{ // as updateFleet leaves it: what failed is kept while the view is degraded
		relays: []membership.Member{{ID: "r1", ForwardAddr: "10.0.0.1:7420", Epoch: 5, Datacenter: "ber-1", Region: "eu"}, {ID: "r2"}},
		absent: []membership.Member{{ID: "r3", ForwardAddr: "10.0.0.3:7420"}},
	}}
	want := []relaypool.Peer{{ID: "r1", Address: "10.0.0.1:7420", Instance: "5", Datacenter: "ber-1", Region: "eu"}}
	if got := r.peers([]string{"r3", "r2", "r1"}); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v: r2 has no address, r3 is absent", got, want)
	}
}
