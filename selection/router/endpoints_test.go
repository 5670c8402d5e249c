package router_test

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/fleet"
	"github.com/ringway/ringway/internal/relay"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/selection"
	"github.com/ringway/ringway/selection/router"
)

// offer is a program that offers echo.
type offer struct {
	*advertise.Advertiser
	leave func()
}

// offer starts one with its own gossip, behind a relay.
func (c *cluster) offer(id, address string) offer {
	c.t.Helper()
	cfg := advertise.AdvertiserConfig{
		Cluster: "shop", Environment: "dev", ID: id, BindAddr: "127.0.0.1:0", DrainDelay: time.Millisecond,
		Services: []advertise.Service{{Name: "echo", Address: address}},
	}
	for _, r := range c.Relays() {
		cfg.Seeds = append(cfg.Seeds, r.GossipAddr())
	}
	a, err := advertise.NewAdvertiser(cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	leave := sync.OnceFunc(func() {
		stop()
		if err := <-done; err != nil {
			c.t.Error(err)
		}
	})
	c.t.Cleanup(leave)
	return offer{a, leave}
}

// following waits only for the channels of Endpoints: without the event the test fails.
type following struct {
	t  *testing.T
	of *running
}

func (f following) until(what string, want ...string) {
	f.t.Helper()
	end := time.After(waitTime)
	for {
		endpoints, changed := f.of.Endpoints("echo")
		var ids []string
		for _, e := range endpoints {
			ids = append(ids, e.NodeID+"@"+e.Address)
		}
		if slices.Sort(ids); slices.Equal(ids, want) {
			return
		}
		select {
		case <-changed:
		case <-end:
			f.t.Fatalf("after %s no change follows: %v, want %v", what, ids, want)
		}
	}
}

func TestEndpointsFollowAJoinADrainAndALeave(t *testing.T) {
	t.Parallel()
	c := startCluster(t, fleet.Config{Insecure: true})
	c.relay("relay-1", nil)
	r := c.router("relay-2", nil)
	f := following{t, r}
	_, appears := r.Endpoints("echo")
	a, b := c.offer("echo-a", "127.0.0.1:1"), c.offer("echo-b", "127.0.0.1:2")
	<-appears
	f.until("two joins", "echo-a@127.0.0.1:1", "echo-b@127.0.0.1:2")
	if err := b.Set(advertise.Service{Name: "echo", Address: "127.0.0.1:3"}); err != nil {
		t.Fatal(err)
	}
	f.until("another address", "echo-a@127.0.0.1:1", "echo-b@127.0.0.1:3")
	a.Drain()
	f.until("a drain", "echo-b@127.0.0.1:3")
	b.leave()
	f.until("a leave")
}

// silent is an address at which connections are counted.
func silent(t *testing.T) (address string, accepted *atomic.Int64) {
	t.Helper()
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	accepted, done := new(atomic.Int64), make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := socket.Accept()
			if err != nil {
				return
			}
			accepted.Add(1)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = socket.Close(); <-done })
	return socket.Addr().String(), accepted
}

func TestARouterThatOnlyPicksConnectsToNoWorker(t *testing.T) {
	t.Parallel()
	c := startCluster(t, fleet.Config{Insecure: true})
	c.relay("relay-1", func(s *relay.Settings) { s.Role = identity.RoleGate })
	all, accepted := make([]string, 3), make([]*atomic.Int64, 3)
	for i := range all {
		var address string
		address, accepted[i] = silent(t)
		name := "echo-" + strconv.Itoa(i)
		c.offer(name, address)
		all[i] = name + "@" + address
	}
	only := func(pickOnly bool) func(*membership.Config, *router.Config) {
		return func(m *membership.Config, cfg *router.Config) { m.ForwardAddr, cfg.PickOnly = "", pickOnly }
	}
	r := c.router("relay-2", only(true))
	if err := r.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	following{t, r}.until("three joins", all...)
	picked := map[string]bool{}
	for len(picked) < len(all) {
		pick, err := r.Pick(t.Context(), "echo", "")
		if err != nil {
			t.Fatal(err)
		}
		picked[pick.Address()] = true
		pick.Done(selection.Success)
	}
	req, _ := http.NewRequest(http.MethodGet, "http://echo/", http.NoBody)
	if _, err := r.RoundTrip(req); err == nil || !strings.Contains(err.Error(), "PickOnly") {
		t.Error(err)
	}
	for i, n := range accepted {
		if got := n.Load(); got > 0 {
			t.Errorf("%s has taken %d connections", all[i], got)
		}
	}
	// The same program without the setting connects to each before it is ready.
	with := c.router("relay-3", only(false))
	following{t, with}.until("a join", all...)
	if err := with.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(waitTime); slices.ContainsFunc(accepted, func(n *atomic.Int64) bool { return n.Load() == 0 }); time.Sleep(time.Millisecond) { // polls a count
		if time.Now().After(end) {
			t.Fatal("without the setting a router does not connect either")
		}
	}
}
