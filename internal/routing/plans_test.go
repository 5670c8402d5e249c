package routing_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

func TestTheRelaysThatEndpointsAskForWinOverTheSettingAndChangeAtRunTime(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 4, 2)
	three := watch(t, c.relays[0], func(c *routing.Config) { c.Plans.RelaysPerService = 3 })
	auto := watch(t, c.relays[0], func(*routing.Config) {})
	for _, step := range []struct{ asked, three, auto int }{{0, 3, 4}, {3, 3, 3}, {4, 4, 4}, {0, 3, 4}, {1, 3, 3}, {2, 3, 3}} {
		for id, m := range c.workers {
			changed := c.offers[id]
			changed.Relays = int32(step.asked)
			offer(t, m, changed)
		}
		procs.Await(t, "as many relays as asked for", func() bool {
			a, b := three.of("echo").Plan, auto.of("echo").Plan
			return a != nil && b != nil && len(a.Affine()) == step.three && len(b.Affine()) == step.auto
		})
	}
	procs.Await(t, "the reason for more relays than asked for", func() bool {
		return three.of("echo").Votes.RelaysRaised(3) == "its workers ask for relays=2, raised to 3 by --min-peers-per-worker"
	})
}

func TestARouterRefusesFewerRelaysThanAWorkerNeeds(t *testing.T) {
	t.Parallel()
	for relays, m := range map[int]int{1: 3, 2: 3, 4: 5} {
		cfg := routing.Config{Plans: routing.PlanSettings{PlanConfig: affinity.PlanConfig{RelaysPerService: relays, Minimums: affinity.Minimums{PeersPerWorker: m, PeersPerRelay: 1}}}}
		if _, err := routing.New(cfg); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("allowed are %d or more", m)) {
			t.Errorf("%d relays, %d for each worker: %v", relays, m, err)
		}
	}
}

func TestARelayOnTheSkipListForwardsThatServiceOnly(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 2, 1)
	offer(t, c.workers["w1"], c.offers["w1"], advertise.Service{Name: "other", Address: backend(t)})
	r := watch(t, c.relays[0], func(c *routing.Config) { c.Plans.Skip = map[string][]string{"echo": {"r1"}} })
	procs.Await(t, "echo at r2 alone, other here, too", func() bool {
		echo, other := r.of("echo"), r.of("other")
		return !echo.Affine() && len(echo.Range) == 0 && slices.Equal(relayIDs(echo.Forward), []string{"r2"}) && other.Affine() && len(other.Plan.Affine()) == 2
	})
}

func TestTheStrategyDecidesOnTheRange(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 4, 8)
	for _, strategy := range []affinity.Strategy{affinity.Projection, affinity.Rendezvous} {
		r := watch(t, c.relays[0], func(c *routing.Config) { c.Plans.Strategy = strategy })
		procs.Await(t, "all are connected", r.connected("echo", 4, 8))
		plan := r.of("echo").Plan
		if ranges, err := plan.Ranges(r.of("echo").Index); plan.Strategy() != strategy || err != nil || (len(ranges) > 0) != (strategy == affinity.Projection) {
			t.Errorf("asked for %s: %s because %q, ranges %v, %v", strategy, plan.Strategy(), plan.Fallback(), ranges, err)
		}
		assignments, err := plan.Assignments(r.of("echo").Index)
		var want []string
		for _, a := range assignments {
			want = append(want, a.Worker)
		}
		slices.Sort(want)
		if got := nodes(r.of("echo").Range); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: connected to %v, planned %v, %v", strategy, got, want, err)
		}
	}
}

// Three relays and two workers in each of two datacenters of a region.
func TestTooFewWorkersInItsDatacenterHaveARelayLookBeyondIt(t *testing.T) {
	t.Parallel()
	in := func(dc string) func(*membership.Config) {
		return func(c *membership.Config) { c.Datacenter, c.Region = dc, "eu" }
	}
	self := join(t, "r1", identity.RoleRelay, nil, in("fra"))
	for id, dc := range map[string]string{"r2": "fra", "r3": "fra", "r4": "par", "r5": "par", "r6": "par"} {
		join(t, id, identity.RoleRelay, self, in(dc))
	}
	for id, dc := range map[string]string{"w1": "fra", "w2": "fra", "w3": "par", "w4": "par"} {
		offer(t, join(t, id, identity.RoleWorker, self, in(dc)), advertise.Service{Name: "echo", Address: backend(t)})
	}
	two := watch(t, self, func(c *routing.Config) { c.Plans.PeersPerTier = 2 })
	three := watch(t, self, func(c *routing.Config) { c.Plans.PeersPerTier = 3 })
	procs.Await(t, "all are connected", two.connected("echo", 6, 4))
	procs.Await(t, "all are connected", three.connected("echo", 6, 4))
	if got := nodes(two.of("echo").Range); !slices.Equal(got, []string{"w1", "w2"}) {
		t.Errorf("two are enough: connected to %v, want those of its own datacenter", got)
	}
	if got := nodes(three.of("echo").Range); len(got) < 3 || !slices.Contains(got, "w1") || !slices.Contains(got, "w2") {
		t.Errorf("two are not enough: connected to %v, want w1, w2 and more", got)
	}
}

// replay gives views that were real, when the test wants it.
type replay chan *advertise.View

func (r replay) Watch(context.Context) <-chan *advertise.View { return r }

// viewsOf returns settled views in which one worker after the other offers echo.
func viewsOf(t *testing.T, self *member, workers int) (views []*advertise.View) {
	t.Helper()
	for i := range workers {
		id := "w" + string(rune('1'+i))
		offer(t, join(t, id, identity.RoleWorker, self), advertise.Service{Name: "echo", Address: "127.0.0.1:1"})
		procs.Await(t, id+" in the catalogue", func() bool {
			v := self.catalogue.View()
			return v.Settled() && v.EndpointCount() == i+1
		})
		views = append(views, self.catalogue.View())
	}
	return views
}

func TestABurstOfChangesCostsOnePlan(t *testing.T) {
	t.Parallel()
	self := join(t, "r1", identity.RoleRelay, nil)
	const workers = 8
	views := viewsOf(t, self, workers)
	follow := func(delay time.Duration) (*rig, replay) {
		source := make(replay)
		return watch(t, self, func(c *routing.Config) { c.Catalogue, c.CoalesceDelay = source, delay }), source
	}

	burst, source := follow(2 * time.Second)
	for _, v := range views {
		source <- v
	}
	procs.Await(t, "all workers", func() bool { return len(burst.of("echo").Endpoints) == workers })
	if n := burst.plans(); n != 1 {
		t.Errorf("%d plans for a burst of %d views, want 1", n, workers)
	}

	single, source := follow(time.Nanosecond)
	for i, v := range views {
		source <- v
		procs.Await(t, "the next worker", func() bool { return len(single.of("echo").Endpoints) == i+1 })
	}
	procs.Await(t, "a plan for each", func() bool { return single.plans() == workers })
}

// The members are those of real gossip, outside of the bubble.
func TestASingleChangeIsRoutedImmediatelyAndThoseOf100msTogether(t *testing.T) {
	t.Parallel()
	self := join(t, "r1", identity.RoleRelay, nil)
	views := viewsOf(t, self, 6)
	synctest.Test(t, func(t *testing.T) {
		source := make(replay)
		r := watch(t, self, func(c *routing.Config) { c.Catalogue = source })
		expect := func(what string, workers, plans int) {
			t.Helper()
			synctest.Wait()
			if got := len(r.of("echo").Endpoints); got != workers || r.plans() != plans {
				t.Errorf("%s: %d workers after %d plans, want %d after %d", what, got, r.plans(), workers, plans)
			}
		}
		source <- views[0]
		expect("the first view, of which more may come", 0, 0)
		time.Sleep(time.Second)
		expect("a second later", 1, 1)
		if !r.Settled() {
			t.Error("not settled")
		}
		source <- views[1]
		expect("a single change", 2, 2)
		for _, v := range views[2:5] {
			source <- v
			time.Sleep(30 * time.Millisecond)
		}
		expect("a burst", 2, 2)
		time.Sleep(9 * time.Millisecond)
		expect("within 100 ms of the last plan", 2, 2)
		time.Sleep(time.Millisecond)
		expect("100 ms after the last plan", 5, 3)
		time.Sleep(99 * time.Millisecond)
		source <- views[4]
		time.Sleep(time.Second)
		expect("a view that changes no route", 5, 3)
		source <- views[4]
		source <- views[5]
		expect("a change after one that changes no route", 6, 4)
	})
}

// r2's router follows what r1 sees, and then r1 sees r2 no more.
func TestARelayThatDoesNotFindItselfChangesNothingAndLogsItOnce(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 5, 4)
	r := watch(t, c.relays[0], func(c *routing.Config) { c.Self = "r2" })
	procs.Await(t, "all are connected", r.connected("echo", 5, 4))
	procs.Await(t, "no connection of an earlier plan drains", func() bool {
		now := r.events()
		return now["drain_started"] == now["closed"]+now["drain_cancelled"]
	})
	before := r.events()
	was := r.of("echo")

	c.stop(c.relays[1])
	procs.Await(t, "a warning", func() bool { return strings.Contains(r.log.String(), "does not find itself") })
	c.stop(c.relays[4]) // what others do is not followed either
	procs.Await(t, "r5 is gone", func() bool { _, there := c.relays[0].Snapshot().Get("r5"); return !there })
	offer(t, c.workers["w1"], c.offers["w1"], advertise.Service{Name: "other", Address: backend(t)})
	procs.Await(t, "a change after that", r.connected("other", 5, 1))
	if now := r.of("echo"); now.Index != was.Index || !slices.Equal(nodes(now.Range), nodes(was.Range)) || len(now.Plan.Affine()) != 5 {
		t.Errorf("the route has changed: %+v", now)
	}
	if now := r.events(); now["closed"] != before["closed"] || now["drain_started"] != before["drain_started"] {
		t.Errorf("connections have moved: %v, before %v", now, before)
	}
	if n := strings.Count(r.log.String(), "does not find itself"); n != 1 {
		t.Errorf("said %d times:\n%s", n, r.log)
	}
}
