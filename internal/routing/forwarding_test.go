package routing_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/relaypool"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/selection"
)

func relayIDs(relays []relaypool.Peer) []string {
	var out []string
	for _, r := range relays {
		out = append(out, r.ID)
	}
	slices.Sort(out)
	return out
}

// forwardTo is a relay as others see it: a member with a peer listener that answers
// everything.
type forwardTo struct {
	*member
	server *httptest.Server
	open   atomic.Int64 // connections
	got    atomic.Int64 // requests
}

func startForwardTo(t *testing.T, id string, seed *member, change ...func(*membership.Config)) *forwardTo {
	t.Helper()
	r := &forwardTo{}
	r.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		r.got.Add(1)
		_, _ = io.WriteString(w, id)
	}))
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	r.server.Config.Protocols = &protocols
	r.server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		switch s {
		case http.StateNew:
			r.open.Add(1)
		case http.StateClosed, http.StateHijacked:
			r.open.Add(-1)
		}
	}
	r.server.Start()
	t.Cleanup(r.server.Close)
	change = append(change, func(c *membership.Config) { c.ForwardAddr = r.server.Listener.Addr().String() })
	r.member = join(t, id, identity.RoleRelay, seed, change...)
	return r
}

// gate is a gate in front of n relays r0, r1, … and a worker that offers services. It has three
// primaries and two backups for each service.
func gate(t *testing.T, n int, change func(*routing.Config), services ...string) (*rig, []*forwardTo) {
	t.Helper()
	self := join(t, "g1", identity.RoleGate, nil)
	var relays []*forwardTo
	for i := range n {
		relays = append(relays, startForwardTo(t, fmt.Sprintf("r%d", i), self))
	}
	offerAll(t, self, services...)
	return watch(t, self, func(c *routing.Config) {
		c.Role, c.Forwarding = identity.RoleGate, relaypool.DefaultConfig()
		change(c)
	}), relays
}

// The number of relays that share the requests follows from how many gates forward to how many
// relays: these few use all of them.
func TestFewerGatesUseMoreRelays(t *testing.T) {
	t.Parallel()
	self := join(t, "g1", identity.RoleGate, nil)
	for i := range 10 {
		startForwardTo(t, fmt.Sprintf("r%d", i), self)
	}
	offerAll(t, self, "echo")
	gates := []*member{self}
	for i := 2; i <= 16; i++ {
		gates = append(gates, join(t, fmt.Sprintf("g%d", i), identity.RoleGate, self))
	}
	procs.Await(t, "the gate knows all", func() bool { // it would begin with more relays than it needs
		v := self.catalogue.View()
		return v.Members() != nil && len(v.Members().WithRole(identity.RoleRelay)) == 10 && len(v.Members().WithRole(identity.RoleGate)) == 16 && v.EndpointCount() == 1
	})
	r := watch(t, self, func(c *routing.Config) { c.Role = identity.RoleGate })
	procs.Await(t, "sixteen gates use each relay eight times together", r.forwards("echo", 10, 5, 2))
	for _, left := range []struct{ gates, primaries, backups int }{{11, 8, 2}, {8, 10, 0}} {
		for _, g := range gates[left.gates:] {
			if err := g.Leave(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		gates = gates[:left.gates]
		procs.Await(t, fmt.Sprint("fewer gates, more primaries: ", left), r.forwards("echo", 10, left.primaries, left.backups))
	}
}

func offerAll(t *testing.T, seed *member, services ...string) {
	t.Helper()
	var all []advertise.Service
	for _, name := range services {
		all = append(all, advertise.Service{Name: name, Address: backend(t)})
	}
	offer(t, join(t, "w1", identity.RoleWorker, seed), all...)
}

// status is how a service is forwarded.
func (r *rig) status(service string) relaypool.Status {
	if s, ok := r.Service(service); ok && s.Relays() != nil {
		return s.Relays().Status()
	}
	return relaypool.Status{}
}

// forwards reports whether a service has these numbers of relays to forward to, of
// primaries and of backups.
func (r *rig) forwards(service string, relays, primaries, backups int) func() bool {
	return func() bool {
		s := r.status(service)
		return len(r.of(service).Forward) == relays && len(s.Peers) == relays && len(s.Primaries) == primaries && len(s.Backups) == backups
	}
}

// ask forwards one request, without a retry.
func (r *rig) ask(service, key string) (relay string, _ error) {
	lease, err := r.acquire(service, key)
	if err != nil {
		return "", err
	}
	return carry(lease)
}

func (r *rig) acquire(service, key string) (*relaypool.Lease[*routing.RelayHold], error) {
	s, ok := r.Service(service)
	if !ok || s.Relays() == nil {
		return nil, fmt.Errorf("%s is not forwarded", service)
	}
	return s.Relays().Acquire(r.t.Context(), relaypool.Request{Key: key})
}

func carry(lease *relaypool.Lease[*routing.RelayHold]) (relay string, _ error) {
	defer lease.Release()
	w := httptest.NewRecorder()
	if _, err := lease.Conn().Target.Pool.Carry(w, httptest.NewRequest("GET", "/", nil), &upstream.Options{}); err != nil {
		lease.Report(selection.Result{Outcome: selection.Failure})
		lease.Conn().Failed(err)
		return lease.Peer().ID, err
	}
	lease.Report(selection.Result{Outcome: selection.Success})
	if w.Body.String() != lease.Peer().ID {
		return "", fmt.Errorf("%s answers as %s", w.Body, lease.Peer().ID)
	}
	return lease.Peer().ID, nil
}

func connected(relays []*forwardTo) (n int) {
	for _, r := range relays {
		if r.open.Load() > 0 {
			n++
		}
	}
	return n
}

func TestAGateConnectsToFiveOfTenRelaysAndServicesShareTheConnections(t *testing.T) {
	t.Parallel()
	r, relays := gate(t, 10, func(c *routing.Config) {
		c.Forwarding.BaselineLatency = time.Minute // a busy machine evicts no relay
	}, "echo", "other")
	procs.Await(t, "three primaries and two backups", r.forwards("echo", 10, 3, 2))
	procs.Await(t, "as many for the other service", r.forwards("other", 10, 3, 2))
	procs.Await(t, "settled", r.Settled)
	for range 60 {
		for _, service := range []string{"echo", "other"} {
			if _, err := r.ask(service, ""); err != nil {
				t.Fatal(err)
			}
		}
	}
	used := map[string]bool{}
	for _, service := range []string{"echo", "other"} {
		s := r.status(service)
		for _, id := range slices.Concat(s.Primaries, s.Backups) {
			used[id] = true
		}
	}
	if n := connected(relays); n != len(used) || n > 10-2 {
		t.Errorf("%d of 10 relays are connected to, want the %d that two services chose of their eight", n, len(used))
	}
	for i, relay := range relays {
		if n := relay.open.Load(); n > 1 {
			t.Errorf("r%d has %d connections of one gate, want one that the services share", i, n)
		}
	}
	// What counts most: one service, five relays.
	s, counts := r.status("echo"), map[string]uint64{}
	for _, p := range s.Peers {
		if p.Requests > 0 || p.Connections > 0 {
			counts[p.ID] = p.Requests
		}
	}
	if len(counts) != 5 {
		t.Errorf("echo uses %v", counts)
	}
	for _, id := range s.Primaries {
		if counts[id] != 20 {
			t.Errorf("%s got %d of 60 requests: three primaries take turns", id, counts[id])
		}
	}
}

func TestTheRelaysOfTheOwnDatacenterArePreferred(t *testing.T) {
	t.Parallel()
	self := join(t, "g1", identity.RoleGate, nil)
	near := map[string]bool{}
	for i := range 8 {
		id := fmt.Sprintf("r%d", i)
		near[id] = i%2 == 0
		startForwardTo(t, id, self, func(c *membership.Config) {
			c.Datacenter, c.Region = "ber-2", "eu"
			if near[id] {
				c.Datacenter = "ber-1"
			}
		})
	}
	offerAll(t, self, "echo")
	procs.Await(t, "the gate knows all relays", func() bool { // with fewer, far ones get places
		v := self.catalogue.View()
		return v.Members() != nil && len(v.Members().WithRole(identity.RoleRelay)) == 8 && v.EndpointCount() == 1
	})
	at := func(datacenter string) *rig {
		return watch(t, self, func(c *routing.Config) {
			c.Role, c.Datacenter, c.Region = identity.RoleGate, datacenter, "eu"
		})
	}
	here, nowhere := at("ber-1"), at("")
	procs.Await(t, "the four near ones", here.forwards("echo", 8, 4, 0))
	procs.Await(t, "all of the region", nowhere.forwards("echo", 8, 8, 0))
	s := here.status("echo")
	for _, id := range slices.Concat(s.Primaries, s.Backups) {
		if !near[id] {
			t.Errorf("%s is connected to, and is in another datacenter", id)
		}
	}
}

func TestARelayWhoseConnectionsBreakLosesItsPlaceAndABackupTakesIt(t *testing.T) {
	t.Parallel()
	lose(t, true, time.Hour)
}

func TestAnAuditFindsThatARelaysConnectionsBroke(t *testing.T) {
	t.Parallel()
	lose(t, false, 10*time.Millisecond)
}

// lose has a primary break down, and either a request or an audit find out.
func lose(t *testing.T, asking bool, audits time.Duration) {
	t.Helper()
	r, relays := gate(t, 6, func(c *routing.Config) { c.AuditInterval = audits }, "echo")
	procs.Await(t, "five are connected", r.forwards("echo", 6, 3, 2))
	first := r.status("echo")
	victim, heir := first.Primaries[0], first.Backups[0]
	for i, relay := range relays {
		if fmt.Sprintf("r%d", i) == victim {
			relay.server.CloseClientConnections()
			relay.server.Close()
		}
	}
	procs.Await(t, heir+" is a primary instead of "+victim, func() bool {
		if asking {
			_, _ = r.ask("echo", "")
		}
		s := r.status("echo")
		return !slices.Contains(s.Primaries, victim) && slices.Contains(s.Primaries, heir)
	})
	procs.Await(t, "the sixth relay is connected to", func() bool {
		s := r.status("echo")
		return len(s.Primaries) == 3 && len(s.Backups) == 2 && !slices.Contains(slices.Concat(s.Primaries, s.Backups), victim)
	})
	if n := r.counters("ringway_pool_evictions_total")[string(relaypool.Lost)]; n == 0 {
		t.Error("no eviction was counted")
	}
	for range 9 {
		if _, err := r.ask("echo", ""); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNoRequestIsLostWhilePlacesGrowOldAndAreGivenToOthers(t *testing.T) {
	t.Parallel()
	r, _ := gate(t, 8, func(c *routing.Config) {
		c.Forwarding.MaxAge = 50 * time.Millisecond
	}, "echo")
	procs.Await(t, "five are connected", r.forwards("echo", 8, 3, 2))
	refreshed := func() int { return r.counters("ringway_pool_evictions_total")[string(relaypool.Stale)] }
	var done atomic.Bool
	var all sync.WaitGroup
	var sent atomic.Int64
	for range 4 {
		all.Go(func() {
			for !done.Load() {
				if relay, err := r.ask("echo", ""); err != nil {
					t.Errorf("lost at %s: %v", relay, err)
					return
				}
				sent.Add(1)
			}
		})
	}
	for range 8 { // and what lasts longer than a place
		lease, err := r.acquire("echo", "")
		if err != nil {
			t.Fatal(err)
		}
		before := refreshed()
		procs.Await(t, "every place was given anew", func() bool { return refreshed() >= before+15 })
		if relay, err := carry(lease); err != nil {
			t.Errorf("lost at %s, which has lost its place meanwhile: %v", relay, err)
		}
	}
	procs.Await(t, "forty places were given anew, under load", func() bool {
		return t.Failed() || refreshed() >= 40 && sent.Load() >= 200
	})
	done.Store(true)
	all.Wait()
}

// Each session keeps the place that its relay had when it began.
func TestOldSessionsKeepNoRelayFromAPlace(t *testing.T) {
	t.Parallel()
	r, _ := gate(t, 1, func(*routing.Config) {}, "echo")
	procs.Await(t, "one is connected", r.forwards("echo", 1, 1, 0))
	s, _ := r.Service("echo")
	for range 8 {
		lease, err := r.acquire("echo", "")
		if err != nil {
			t.Fatalf("a request got no relay: %v", err)
		}
		defer lease.Release()
		for _, relays := range [][]relaypool.Peer{nil, s.Route().Forward} { // it left and came back
			if err := s.Relays().Update(relays); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestAKeyStaysWithItsRelay(t *testing.T) {
	t.Parallel()
	r, _ := gate(t, 5, func(c *routing.Config) {
		c.Forwarding.BaselineLatency = time.Minute // a busy machine evicts no relay
	}, "echo")
	procs.Await(t, "five are connected", r.forwards("echo", 5, 3, 2))
	used := map[string]bool{}
	for key := range 6 {
		first, err := r.ask("echo", fmt.Sprint(key))
		if err != nil {
			t.Fatal(err)
		}
		used[first] = true
		for range 5 {
			if again, err := r.ask("echo", fmt.Sprint(key)); err != nil || again != first {
				t.Errorf("key %d went to %s, then to %s, %v", key, first, again, err)
			}
		}
	}
	if len(used) != 3 {
		t.Errorf("six keys use %v, want all three primaries", used)
	}
}

// A relay that was alone is settled. When it joins others, the members are known before the
// router has routed them.
func TestARelayIsNotSettledForMembersThatItHasNotRouted(t *testing.T) {
	c := startCluster(t, 1, 0)
	r := watch(t, c.relays[0], func(*routing.Config) {})
	procs.Await(t, "settled alone", r.Settled)
	alone := c.relays[0].Snapshot().Version()
	if !r.SettledAt(alone) || r.SettledAt(alone+1) {
		t.Errorf("settled as of snapshot %d: %v, as of the next: %v", alone, r.SettledAt(alone), r.SettledAt(alone+1))
	}
	join(t, "r2", identity.RoleRelay, c.relays[0])
	procs.Await(t, "settled with both", func() bool {
		s := c.relays[0].Snapshot()
		return len(s.Members()) == 2 && r.SettledAt(s.Version())
	})
}

func TestARelayIsNotSettledBeforeItHasTriedTheRelaysThatItForwardsTo(t *testing.T) {
	t.Parallel()
	hanging := procs.Listen(t) // takes connections, and sends nothing
	procs.Accept(t, hanging, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })

	self := join(t, "g1", identity.RoleGate, nil)
	join(t, "r1", identity.RoleRelay, self, func(c *membership.Config) { c.ForwardAddr = hanging.Addr().String() })
	offerAll(t, self, "echo")
	procs.Await(t, "the gate knows all that it has to wait for", func() bool {
		v := self.catalogue.View()
		return v.Members() != nil && len(v.Members().WithRole(identity.RoleRelay)) == 1 && v.EndpointCount() == 1
	})
	r := watch(t, self, func(c *routing.Config) { c.Role, c.Identity = identity.RoleGate, relayIdentity(t) })
	procs.Await(t, "settled, because no other is left to be tried", r.Settled)
	if s := r.status("echo"); len(s.Primaries) > 0 || s.Peers[0].Reason == "" {
		t.Errorf("settled before the attempt to connect has failed: %+v", s)
	}
}
