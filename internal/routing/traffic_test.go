package routing_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/selection"
)

// state has a relay state its traffic, of one service after the other.
func state(t *testing.T, m *member, traffic ...advertise.Traffic) {
	t.Helper()
	if err := m.catalogue.State(advertise.RelayStatement{Traffic: traffic}); err != nil {
		t.Fatal(err)
	}
}

// states reports whether the plan of a service has this rate for a relay.
func (r *rig) states(service, relay string, rate int) func() bool {
	return func() bool {
		got, _ := r.of(service).Traffic(relay)
		return got == rate
	}
}

func TestTrafficThatARelayStatesPlansItsServiceAnewAndMovesNoConnection(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 4, 8)
	offer(t, c.workers["w1"], c.offers["w1"], advertise.Service{Name: "other", Address: backend(t)})
	r := watch(t, c.relays[0], func(c *routing.Config) { c.Plans.Minimums = one })
	procs.Await(t, "all are connected", r.connected("echo", 4, 8))
	procs.Await(t, "all are connected", r.connected("other", 4, 1))
	procs.Await(t, "settled", r.Settled)
	echo, other, events, plans := r.of("echo"), r.of("other"), r.events(), r.plans()

	state(t, c.relays[1], advertise.Traffic{Service: "echo", Rate: 50})
	procs.Await(t, "r2 states 50/s", r.states("echo", "r2", 50))
	state(t, c.relays[2], advertise.Traffic{Service: "echo", Rate: 150})
	procs.Await(t, "r3 states 150/s", r.states("echo", "r3", 150))
	now := r.of("echo")
	if _, ratio := now.Traffic("r3"); ratio != 1.5 {
		t.Errorf("r3 states %v times the mean of 50 and 150, want 1.5", ratio)
	}
	if rate, ratio := now.Traffic("r4"); rate != 0 || ratio != 0 {
		t.Errorf("r4 states nothing and has %d/s, %v times the mean", rate, ratio)
	}
	if n := r.plans() - plans; n != 2 || r.of("other") != other {
		t.Errorf("%d plans for two statements about echo, want 2; other was planned anew: %v", n, r.of("other") != other)
	}
	pools := func(route *routing.Route) (out []any) {
		for _, target := range route.Range {
			out = append(out, target.Pool)
		}
		return out
	}
	if !slices.Equal(nodes(now.Range), nodes(echo.Range)) || !slices.Equal(pools(now), pools(echo)) || now.PlanVersion() != echo.PlanVersion() {
		t.Errorf("the range was %v and is %v", nodes(echo.Range), nodes(now.Range))
	}
	weights := func(route *routing.Route) (out []float64) {
		for _, target := range route.Range {
			out = append(out, target.Weight)
		}
		return out
	}
	if slices.Equal(weights(now), weights(echo)) {
		t.Errorf("the weights are still %v", weights(echo))
	}
	for event, n := range r.events() {
		if n != events[event] {
			t.Errorf("%d connections %s", n-events[event], event)
		}
	}

	state(t, c.relays[2])
	procs.Await(t, "r3 states nothing any more", r.states("echo", "r3", 0))
}

func TestAVanishedRelayKeepsItsTrafficWhileItKeepsItsPlace(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 4, 8)
	grace := func(d time.Duration) *rig {
		return watch(t, c.relays[0], func(c *routing.Config) {
			c.Plans.Minimums, c.Links = one, routing.LinkConfig{Grace: d, DrainDelay: time.Hour}
		})
	}
	none, long := grace(0), grace(time.Hour)
	for _, r := range []*rig{none, long} {
		procs.Await(t, "all are connected", r.connected("echo", 4, 8))
	}
	state(t, c.relays[3], advertise.Traffic{Service: "echo", Rate: 40})
	for _, r := range []*rig{none, long} {
		procs.Await(t, "r4 states 40/s", r.states("echo", "r4", 40))
	}
	c.stop(c.relays[3])
	procs.Await(t, "without grace its traffic is gone", none.states("echo", "r4", 0))
	procs.Await(t, "r4 keeps its place", func() bool { return long.of("echo").RelayAbsent("r4") })
	if !long.states("echo", "r4", 40)() {
		t.Error("r4 keeps its place without its traffic")
	}
	join(t, "r4", identity.RoleRelay, c.relays[0])
	procs.Await(t, "r4 is back and has stated nothing yet", func() bool {
		return !long.of("echo").RelayAbsent("r4") && long.states("echo", "r4", 0)()
	})
}

func TestTrafficOfAServiceThatTheRelayDoesNotServeIsCountedAndChangesNoPlan(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 2, 4)
	r := watch(t, c.relays[0], func(c *routing.Config) { c.Plans.Skip = map[string][]string{"echo": {"r2"}} })
	procs.Await(t, "all are connected", r.connected("echo", 1, 4))
	procs.Await(t, "settled", r.Settled)
	was, plans := r.of("echo"), r.plans()
	state(t, c.relays[1], advertise.Traffic{Service: "echo", Rate: 1 << 24}, advertise.Traffic{Service: "unheard-of", Rate: 1})
	procs.Await(t, "both are counted", func() bool {
		refused := r.counters("ringway_relay_demand_refused_total")
		return refused["not_affine"] == 1 && refused["unknown_service"] == 1
	})
	if r.of("echo") != was || r.plans() != plans {
		t.Error("echo was planned anew")
	}
	if rate, _ := r.of("echo").Traffic("r2"); rate != 0 {
		t.Errorf("r2 has %d/s in a plan in which it has no place", rate)
	}
}

// The members are those of real gossip, outside of the bubble.
func TestARelayStatesTheRequestsThatItSendsToWorkers(t *testing.T) {
	t.Parallel()
	self := join(t, "r1", identity.RoleRelay, nil)
	views := viewsOf(t, self, 3)
	synctest.Test(t, func(t *testing.T) {
		source, stated := make(replay), make(chan []advertise.Traffic, 16)
		began := time.Now()
		r := watch(t, self, func(c *routing.Config) {
			c.Catalogue, c.PickOnly, c.StateTraffic = source, true, func(traffic []advertise.Traffic) { stated <- traffic }
		})
		source <- views[2]
		time.Sleep(time.Second)
		synctest.Wait()
		s, _ := r.Service("echo")
		for range 10 * 50 {
			now := selection.Instant(time.Since(began))
			pick, err := s.Pick("", now, &routing.Tried{})
			if err != nil {
				t.Fatal(err)
			}
			s.Endpoints.Done(pick, now, selection.Result{Outcome: selection.Success})
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		if n := len(stated); n != 1 {
			t.Fatalf("%d statements in 50 s of steady traffic, want 1", n)
		}
		if first := <-stated; len(first) != 1 || first[0].Service != "echo" || first[0].Rate < 8 || first[0].Rate > 12 {
			t.Fatalf("ten requests a second: stated %v, want about 10/s", first)
		}
		if !strings.Contains(r.log.String(), `msg="this relay states its traffic" service=echo`) {
			t.Errorf("the log: %s", r.log)
		}
		time.Sleep(6 * time.Minute)
		synctest.Wait()
		var last []advertise.Traffic
		for len(stated) > 0 {
			last = <-stated
		}
		if len(last) != 0 || !strings.Contains(r.log.String(), `msg="this relay states its traffic no longer" service=echo`) {
			t.Errorf("without a request for six minutes it states %v; the log: %s", last, r.log)
		}
	})
}
