package routing_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/peering"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/strategy"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/selection"
)

// choiceOf is the strategy of echo, "" while the relay does not know it.
func (r *rig) choiceOf() string {
	if s, ok := r.Service("echo"); ok && s.Route().Plan != nil {
		return s.Choice().Spec.String() + " " + string(s.Choice().Origin)
	}
	return ""
}

func (c *cluster) advertise(ids []string, selection string) {
	for _, id := range ids {
		s := c.offers[id]
		s.Selection = selection
		c.offers[id] = s
		offer(c.t, c.workers[id], s)
	}
}

// With five relays each connects to a part of seven workers: not enough for a key to
// lead to one worker, whichever relay it comes to.
func TestAServiceThatAdvertisesStableSendsAKeyToOneWorkerThroughEveryRelay(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 5, 7)
	var relays []*rig
	for _, self := range c.relays {
		relays = append(relays, watch(t, self, func(cfg *routing.Config) { cfg.Self, cfg.Plans.Minimums = self.Config().ID, one }))
	}
	for _, r := range relays {
		procs.Await(t, "a part of the workers is connected", func() bool { return r.connected("echo", 5, 7)() && len(r.of("echo").Range) < 7 })
		if got := r.choiceOf(); got != "p2c default" {
			t.Errorf("at first: %s", got)
		}
	}
	s, _ := relays[0].Service("echo")
	before, _ := s.Endpoints.Pick(0, nil)

	ids := []string{"w1", "w2", "w3", "w4", "w5", "w6", "w7"}
	c.advertise(ids, "stable")
	for _, r := range relays {
		procs.Await(t, "all are connected", func() bool { return r.choiceOf() == "stable advertisement" && len(r.of("echo").Range) == 7 })
	}
	if now, _ := relays[0].Service("echo"); now != s || !slices.ContainsFunc(now.Endpoints.Stats(0), func(e selection.EndpointStats) bool { return e.ID == before.ID() && e.InFlight == 1 }) {
		t.Error("a request under way was forgotten")
	}
	workers := map[string]bool{}
	for i := range 50 {
		key, to := fmt.Sprint("key", i), map[string]bool{}
		for _, r := range relays {
			s, _ := r.Service("echo")
			p, err := s.Pick(key, 0, &routing.Tried{})
			if err != nil {
				t.Fatal(err)
			}
			s.Endpoints.Done(p, 0, selection.Result{Outcome: selection.Success}) // or the bound of stable passes keys on
			to[p.Value().Node] = true
			workers[p.Value().Node] = true
		}
		if len(to) != 1 {
			t.Fatalf("%s goes to %v", key, to)
		}
	}
	if len(workers) < 5 {
		t.Errorf("50 keys go to %v", workers)
	}

	c.advertise(ids, "")
	for _, r := range relays {
		procs.Await(t, "it is as before", func() bool { return r.choiceOf() == "p2c default" && len(r.of("echo").Range) < 7 })
	}
}

func TestUnknownPreferredNodesAreLoggedWhenTheRelayHasSettled(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1, 2)
	spec, err := strategy.Parse("ordered;preferred=w2,w9")
	if err != nil {
		t.Fatal(err)
	}
	r := watch(t, c.relays[0], func(cfg *routing.Config) {
		cfg.Strategies.ByService = map[string]strategy.Spec{"echo": spec}
	})
	count := func() int { return r.counters("ringway_relay_selection_problems_total")["unknown_preferred"] }
	procs.Await(t, "w9 is missed", func() bool { return count() >= 1 && strings.Contains(r.log.String(), "unknown=w9") })
	said := count()
	c.stop(c.workers["w2"])
	procs.Await(t, "w2 is missed, too", func() bool { return count() == said+1 && strings.Contains(r.log.String(), "unknown=w2,w9") })
	c.start("w2")
	procs.Await(t, "w9 alone is", func() bool { return count() == said+2 })
	if s, _ := r.Service("echo"); !slices.Equal(s.Choice().UnknownPreferred(), []string{"w9"}) {
		t.Errorf("%v", s.Choice().UnknownPreferred())
	}
}

// closest measures while the service is there, and no longer: goleak watches.
func TestDistancesAreMeasuredInTheBackground(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1, 2)
	all := strategy.Default(strategy.Closest)
	all.Expiry = time.Second // the least
	r := watch(t, c.relays[0], func(cfg *routing.Config) { cfg.Strategies.ByService = map[string]strategy.Spec{"": all} })
	measured := func() bool {
		s, ok := r.Service("echo")
		return ok && len(s.Route().Range) == 2 && s.Explain("", 0).Winner != "" &&
			!slices.ContainsFunc(s.Explain("", 0).Candidates, func(c routing.Candidate) bool { return c.Score == 0 })
	}
	procs.Await(t, "both are measured", measured)
	if got := r.choiceOf(); got != "closest;expiry=1s setting" {
		t.Errorf("%s", got)
	}
	probes := func() int { return r.counters("ringway_selection_probes_total")["ok"] }
	procs.Await(t, "they are measured again", func() bool { return probes() > 3 })
	// Another strategy ends the measuring of the first.
	c.advertise([]string{"w1", "w2"}, "farthest")
	procs.Await(t, "it is farthest now", func() bool { return r.choiceOf() == "farthest advertisement" && measured() })
	procs.Await(t, "no relay measures all the time", func() bool {
		before := probes()
		time.Sleep(1200 * time.Millisecond) // longer than the first would wait
		return probes() == before
	})
}

func TestStatesOfLinksAreCountedNowAndThen(t *testing.T) {
	t.Parallel()
	self := join(t, "r1", identity.RoleRelay, nil)
	r := watch(t, self, func(*routing.Config) {})
	offer(t, join(t, "w1", identity.RoleWorker, self), advertise.Service{Name: "echo", Address: backend(t)})
	procs.Await(t, "the connection is open", r.connected("echo", 1, 1))
	procs.Await(t, "it is in the metrics", func() bool { return r.counters("ringway_peering_links")[peering.Open.String()] == 1 })
}
