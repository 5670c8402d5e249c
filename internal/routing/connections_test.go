package routing_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/peering"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/strategy"
	"github.com/ringway/ringway/membership/identity"
)

// one has a single worker be enough for a relay, so that small fleets do not connect
// everything with everything.
var one = affinity.Minimums{PeersPerWorker: 3, PeersPerRelay: 1}

func TestAWorkerThatRestartsWithinTheGracePeriodMovesNoConnection(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 6, 10)
	graceful := watch(t, c.relays[0], func(c *routing.Config) {
		c.Plans.Minimums, c.Links = one, routing.LinkConfig{Grace: time.Hour, DrainDelay: time.Hour}
	})
	without := watch(t, c.relays[0], func(c *routing.Config) { c.Plans.Minimums = one })
	procs.Await(t, "all are connected", graceful.connected("echo", 6, 10))
	procs.Await(t, "all are connected", without.connected("echo", 6, 10))
	was := graceful.of("echo")
	before, beforeWithout := graceful.events(), without.events()
	restarted := missed(t, was)

	c.stop(c.workers[restarted])
	procs.Await(t, "only its place is left", func() bool {
		route := graceful.of("echo")
		return route.WorkerAbsent(restarted) && len(route.Range) == len(was.Range)-1 && len(route.Plan.Workers()) == 10
	})
	procs.Await(t, "without grace, not even that", without.connected("echo", 6, 9))
	c.start(restarted)
	procs.Await(t, "it is back", func() bool { return !graceful.of("echo").WorkerAbsent(restarted) })
	procs.Await(t, "all are connected again", graceful.connected("echo", 6, 10))
	procs.Await(t, "all are connected again", without.connected("echo", 6, 10))

	now := graceful.of("echo")
	for i, target := range now.Range {
		if target.Node != was.Range[i].Node || target.Pool != was.Range[i].Pool {
			t.Errorf("place %d: %s with another connection than %s before", i, target.Node, was.Range[i].Node)
		}
	}
	moved := func(now, before map[string]int) int { return now["opened"] - before["opened"] }
	if n := moved(graceful.events(), before); n != 0 {
		t.Errorf("%d connections opened, want none: its own was still draining", n)
	}
	if n := moved(without.events(), beforeWithout); n <= 1 {
		t.Errorf("%d connections opened without grace: this test shows nothing", n)
	}
}

// missed is a worker of r1's range without which the plan of the others would give r1
// one that it is not connected to.
func missed(t *testing.T, route *routing.Route) string {
	t.Helper()
	for _, id := range nodes(route.Range) {
		others := slices.DeleteFunc(slices.Clone(route.Plan.Workers()), func(w string) bool { return w == id })
		plan, err := affinity.NewPlan(affinity.PlanConfig{
			Service: "echo", Relays: affinity.Relays(route.Plan.Affine()), Workers: affinity.Workers(others), Minimums: one,
		})
		if err != nil {
			t.Fatal(err)
		}
		assignments, _ := plan.Assignments(route.Index)
		if slices.ContainsFunc(assignments, func(a affinity.Assignment) bool { return !slices.Contains(nodes(route.Range), a.Worker) }) {
			return id
		}
	}
	t.Fatal("no worker is missed: this test shows nothing")
	return ""
}

func TestAVanishedRelayKeepsItsPlaceUntilTheGracePeriodIsOver(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 4, 8)
	grace := func(d time.Duration) *rig {
		return watch(t, c.relays[0], func(c *routing.Config) {
			c.Plans.Minimums, c.Links = one, routing.LinkConfig{Grace: d, DrainDelay: time.Hour}
		})
	}
	none, short, long := grace(0), grace(time.Second), grace(time.Hour)
	for _, r := range []*rig{none, short, long} {
		procs.Await(t, "all are connected", r.connected("echo", 4, 8))
	}
	was, plans, opened := nodes(long.of("echo").Range), short.plans(), long.events()["opened"]

	c.stop(c.relays[3])
	procs.Await(t, "r4 lost its place", none.connected("echo", 3, 8))
	procs.Await(t, "r4 keeps its place", func() bool { return long.of("echo").RelayAbsent("r4") })
	procs.Await(t, "r4 lost its place after a while", short.connected("echo", 3, 8))
	if short.of("echo").RelayAbsent("r4") {
		t.Error("r4 is absent from a plan that it has no place in")
	}
	if n := short.plans() - plans; n < 2 {
		t.Errorf("%d plans, want 2: with the place kept, and without it", n)
	}
	if !long.connected("echo", 4, 8)() || !slices.Equal(nodes(long.of("echo").Range), was) || long.events()["opened"] != opened {
		t.Errorf("within the grace period: %+v, events %v", long.of("echo"), long.events())
	}
}

func TestAnOpenConnectionWithinSlackOfTheRangeIsKept(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 5, 10)
	slack := func(n int) *rig {
		return watch(t, c.relays[0], func(c *routing.Config) { c.Plans.Minimums, c.Links.Slack = one, n })
	}
	none, two := slack(0), slack(2)
	procs.Await(t, "all are connected", none.connected("echo", 5, 10))
	procs.Await(t, "all are connected", two.connected("echo", 5, 10))
	was := two.of("echo")
	join(t, "r6", identity.RoleRelay, c.relays[0])
	procs.Await(t, "ranges are shorter", none.connected("echo", 6, 10))
	procs.Await(t, "ranges are shorter", two.connected("echo", 6, 10))

	now, kept := two.of("echo"), 0
	for _, target := range was.Range {
		if slices.Contains(nodes(now.Range), target.Node) {
			continue
		}
		want := peering.None
		if now.Plan.Distance(now.Index, target.Node) <= 2 {
			want = peering.Spare
			kept++
		}
		procs.Await(t, target.Node+" is "+want.String(), func() bool { return two.link(target.Endpoint) == want })
		procs.Await(t, target.Node+" is closed where there is no slack", func() bool { return none.link(target.Endpoint) == peering.None })
	}
	if kept == 0 {
		t.Errorf("nothing fell out of the range of %v: this test shows nothing", nodes(was.Range))
	}
}

func TestAnUnneededConnectionStaysOpenForTheDrainDelay(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1, 2)
	delay := func(d time.Duration) *rig {
		return watch(t, c.relays[0], func(c *routing.Config) { c.Links.DrainDelay = d })
	}
	atOnce, later := delay(-1), delay(time.Hour)
	procs.Await(t, "both are connected", atOnce.connected("echo", 1, 2))
	procs.Await(t, "both are connected", later.connected("echo", 1, 2))
	was := later.of("echo").Range[0]
	c.workers[was.Node].catalogue.Offer(nil)
	procs.Await(t, "it is closed", func() bool { return atOnce.link(was.Endpoint) == peering.None })
	procs.Await(t, "it is draining", func() bool { return later.link(was.Endpoint) == peering.Draining })
	if was.Pool.Stats().Open != 1 || later.events()["closed"] != 0 {
		t.Errorf("%+v, %v", was.Pool.Stats(), later.events())
	}
	offer(t, c.workers[was.Node], c.offers[was.Node])
	procs.Await(t, "it is wanted again", func() bool { return later.link(was.Endpoint) == peering.Open })
	if now := later.events(); now["opened"] != 2 || now["drain_started"] != 1 || now["drain_cancelled"] != 1 {
		t.Errorf("%v: want it to be taken back, not opened anew", now)
	}
}

func TestAnEndpointThatCannotBeReachedKeepsItsPlaceAndGetsRequestsOnlyWhenItIsAlone(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1, 1)
	dead := join(t, "w2", identity.RoleWorker, c.relays[0])
	offer(t, dead, advertise.Service{Name: "echo", Address: "127.0.0.1:1"})
	r := watch(t, c.relays[0], func(cfg *routing.Config) { cfg.AuditInterval = 10 * time.Millisecond })
	manual := watch(t, c.relays[0], func(cfg *routing.Config) {
		cfg.Strategies.ByService = map[string]strategy.Spec{"": {Name: strategy.Manual, Preferred: []string{"w2"}}}
	})
	inRange := func(want ...string) func() bool {
		return func() bool { return slices.Equal(nodes(r.of("echo").Range), want) }
	}
	procs.Await(t, "both are in the range", inRange("w1", "w2"))
	for _, target := range r.of("echo").Range {
		c.relays[0].catalogue.Observe(*target.Endpoint) // w1 as well: it answers
	}
	procs.Await(t, "w2 gets nothing", inRange("w1"))
	procs.Await(t, "both are in the range of a strategy that may use w2 only", func() bool { return slices.Equal(nodes(manual.of("echo").Range), []string{"w1", "w2"}) })
	s, _ := manual.Service("echo")
	if p, err := s.Pick("", 0, &routing.Tried{}); err != nil || p.Value().Node != "w2" {
		t.Errorf("manual: %v, %v: the outage lasts until the next look instead of the next request", p, err)
	}
	if workers := r.of("echo").Plan.Workers(); len(workers) != 2 || len(r.of("echo").Endpoints) != 2 {
		t.Errorf("planned with %v: every relay must plan with the same workers", workers)
	}
	for weight := range int32(5) { // each change makes another route
		offered := c.offers["w1"]
		offered.Weight = 20 + weight
		offer(t, c.workers["w1"], offered)
		procs.Await(t, "the change", func() bool { return r.of("echo").Range[0].Endpoint.Weight == offered.Weight })
	}
	if n := r.events()["surplus"]; n != 0 {
		t.Errorf("%d times a connection to w2 was made that is not wanted", n)
	}
	c.workers["w1"].catalogue.Offer(nil)
	procs.Await(t, "w2 is better than nothing", inRange("w2"))
}

func TestServicesShareAConnectionThatClosesWhenTheLastHasLetGo(t *testing.T) {
	t.Parallel()
	self := join(t, "r1", identity.RoleRelay, nil)
	r := watch(t, self, func(*routing.Config) {})
	w, address := join(t, "w1", identity.RoleWorker, self), backend(t)
	a, b := advertise.Service{Name: "a", Address: address}, advertise.Service{Name: "b", Address: address}
	offer(t, w, a, b)
	procs.Await(t, "a is connected", r.connected("a", 1, 1))
	procs.Await(t, "b is connected", r.connected("b", 1, 1))
	shared := r.of("a").Range[0]
	if shared.Pool != r.of("b").Range[0].Pool || shared.Pool.Stats().Open != 1 {
		t.Errorf("two connections to one address: %+v", shared.Pool.Stats())
	}
	offer(t, w, b)
	procs.Await(t, "a is gone", func() bool { return len(r.of("a").Range) == 0 })
	if now := r.events(); r.link(shared.Endpoint) != peering.Open || now["drain_started"] != 0 || now["opened"] != 1 {
		t.Errorf("b still needs it: %v", now)
	}
	w.catalogue.Offer(nil)
	procs.Await(t, "it is closed", func() bool { return r.link(shared.Endpoint) == peering.None && r.events()["closed"] == 1 })
	if open := shared.Pool.Stats().Open; open != 0 {
		t.Errorf("%d open", open)
	}
}

func TestAnAuditRepairsAConnectionThatWasCut(t *testing.T) {
	t.Parallel()
	self := join(t, "r1", identity.RoleRelay, nil)
	audited := watch(t, self, func(c *routing.Config) { c.AuditInterval = 10 * time.Millisecond })
	never := watch(t, self, func(c *routing.Config) { c.AuditInterval = time.Hour })
	address := procs.FreeAddr(t) // which is bound twice
	service := httptest.NewUnstartedServer(http.NotFoundHandler())
	_ = service.Listener.Close()
	var err error
	if service.Listener, err = net.Listen("tcp", address); err != nil {
		t.Fatal(err)
	}
	service.Start()
	offer(t, join(t, "w1", identity.RoleWorker, self), advertise.Service{Name: "echo", Address: address})
	for _, r := range []*rig{audited, never} {
		procs.Await(t, "it is connected", r.connected("echo", 1, 1))
	}
	service.CloseClientConnections()
	service.Close()
	for _, r := range []*rig{audited, never} { // a request finds out
		pool := r.of("echo").Range[0].Pool
		procs.Await(t, "nothing is open", func() bool {
			_, _ = pool.Carry(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil), &upstream.Options{})
			return pool.Stats().Open == 0
		})
	}
	procs.Await(t, "the audit finds it missing", func() bool { n := audited.events(); return n["missing"] == 1 && n["lost"] == 1 })

	again, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.NotFoundHandler()}
	served := make(chan error, 1)
	go func() { served <- server.Serve(again) }()
	t.Cleanup(func() { _ = server.Close(); <-served })
	procs.Await(t, "it is open again", audited.connected("echo", 1, 1))
	procs.Await(t, "it is counted", func() bool { return audited.events()["opened"] == 2 })
	if now := never.events(); now["missing"] != 0 || now["opened"] != 1 || never.of("echo").Range[0].Pool.Stats().Open != 0 {
		t.Errorf("without an audit: %v", now)
	}
	dials, waits := never.counters("ringway_relay_upstream_dials_total"), never.counters("ringway_relay_upstream_waits_total")
	if dials["opened"] != 1 || dials["failed"] == 0 || waits["opened"] != 1 || waits["failed"] != dials["failed"] {
		t.Errorf("dials %v, waits %v, want the one that opened and those of the requests that found out", dials, waits)
	}
}
