package affinity_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ringway/ringway/affinity"
)

// threeDatacenters has a datacenter with all it needs (fra), one in the same region with too
// few workers (par), and a remote one with too few relays (nyc).
func threeDatacenters() affinity.PlanConfig {
	cfg := affinity.PlanConfig{Service: "billing", RelaysPerService: 20, IndexSource: affinity.IndexRank}
	for _, dc := range []struct {
		name, region    string
		relays, workers int
	}{{"fra", "eu", 4, 8}, {"par", "eu", 3, 1}, {"nyc", "us", 1, 6}} {
		place := affinity.Place{Datacenter: dc.name, Region: dc.region}
		for i := range dc.relays {
			cfg.Relays = append(cfg.Relays, affinity.Relay{ID: fmt.Sprintf("r-%s-%d", dc.name, i), Place: place})
		}
		for i := range dc.workers {
			cfg.Workers = append(cfg.Workers, affinity.Worker{ID: fmt.Sprintf("w-%s-%d", dc.name, i), Place: place})
		}
	}
	return cfg
}

func TestExplainGivesReasons(t *testing.T) {
	flat := mustPlan(t, affinity.PlanConfig{Service: "billing", Relays: someRelays(8), Skip: []string{"relay-7"},
		RelaysPerService: 5, Workers: someWorkers(20), IndexSource: affinity.IndexRank})
	small := mustPlan(t, affinity.PlanConfig{Service: "billing", Relays: someRelays(2), Workers: someWorkers(2)})
	placed := mustPlan(t, threeDatacenters())
	hashed := mustPlan(t, affinity.PlanConfig{Service: "billing", Relays: someRelays(8), Workers: someWorkers(20), Strategy: affinity.Rendezvous})
	var got strings.Builder
	for _, c := range []struct {
		plan          *affinity.Plan
		relay, worker string
	}{
		{flat, "relay-4", "worker-0"}, {flat, "relay-4", "worker-5"}, {flat, "relay-4", "worker-11"},
		{flat, "relay-7", "worker-0"}, {flat, "relay-99", "worker-0"}, {flat, "relay-4", "worker-99"},
		{small, "relay-1", "worker-1"},
		{placed, "r-fra-0", "w-fra-0"}, {placed, "r-fra-0", "w-par-0"}, {placed, "r-fra-0", "w-nyc-4"},
		{placed, "r-par-0", "w-fra-0"}, {placed, "r-par-1", "w-par-0"}, {placed, "r-nyc-0", "w-nyc-0"}, {placed, "r-nyc-0", "w-fra-0"},
		{hashed, "relay-0", "worker-0"}, {hashed, "relay-1", "worker-0"},
	} {
		e := c.plan.Explain(c.relay, c.worker)
		fmt.Fprintf(&got, "%v %.3f %s: %v\n", e.Connected, e.Weight, e.Tier, e)
	}
	const want = `true 0.083 global: worker-0 is at position 17, inside the range [16..8) of 20 of relay-4
true 0.083 global: worker-5 is at position 18, inside the range [16..8) of 20 of relay-4
false 0.000 global: worker-11 is at position 10, 3 places outside the range [16..8) of 20 of relay-4
false 0.000 : relay-7 does not serve billing: it is on the skip list; it forwards to one of the 5 relays that do
false 0.000 : relay-99 does not serve billing: the 5 relays that do are relay-1, relay-2, relay-6, relay-5, relay-4
false 0.000 : worker-99 does not offer billing, or takes no requests now; 20 other workers do
true 0.500 global: all relays of this ring (2) connect to all of its workers (2)
false 0.000 same_dc: w-fra-0 is at position 0, 1 place outside the range [2..8) of 8 of r-fra-0
false 0.000 same_region: w-par-0 is in datacenter par, and the relays in datacenter fra send nothing there, because nearer workers can take their traffic
false 0.000 global: w-nyc-4 is in datacenter nyc, and the relays in datacenter fra send nothing there, because nearer workers can take their traffic
true 0.079 same_region: w-fra-0 is at position 0, inside the range [0..3) of 8 of r-par-0
true 0.196 same_dc: all relays of this ring (3) connect to all of its workers (1)
true 0.167 same_dc: all relays of this ring (1) connect to all of its workers (6)
false 0.000 global: w-fra-0 is in datacenter fra, and the relays in datacenter nyc send nothing there, because nearer workers can take their traffic
true 0.146 global: relay-0 is choice 3 of 8 for worker-0, which takes the first 3
false 0.000 global: relay-1 is choice 7 of 8 for worker-0, which takes the first 3
`
	if got.String() != want {
		t.Errorf("got:\n%s", got.String())
	}
}

// Explain must report what the plan does, for every pair.
func TestExplainAgreesWithThePlan(t *testing.T) {
	for name, change := range map[string]func(*affinity.PlanConfig){
		"projection": func(*affinity.PlanConfig) {},
		"rendezvous": func(cfg *affinity.PlanConfig) { cfg.Strategy = affinity.Rendezvous },
	} {
		cfg := threeDatacenters()
		change(&cfg)
		p := mustPlan(t, cfg)
		for i, relay := range p.Affine() {
			assignments, err := p.Assignments(i)
			if err != nil {
				t.Fatal(err)
			}
			for _, worker := range p.Workers() {
				e := p.Explain(relay, worker)
				at := slices.IndexFunc(assignments, func(a affinity.Assignment) bool { return a.Worker == worker })
				if e.Connected != (at >= 0) || (e.Distance == 0) != (at >= 0) || e.Distance != p.Distance(i, worker) {
					t.Errorf("%s: %s and %s: connected %v, distance %d; assignment %d", name, relay, worker, e.Connected, e.Distance, at)
				}
				if at >= 0 && e.Weight != assignments[at].Weight {
					t.Errorf("%s: %s and %s: weight %v, want %v", name, relay, worker, e.Weight, assignments[at].Weight)
				}
			}
		}
		if p.Distance(len(p.Affine()), p.Workers()[0]) != -1 || p.Distance(0, "absent") != -1 {
			t.Errorf("%s: a pair that does not exist has a distance", name)
		}
	}
}

func TestALongRangeKeepsSlackForEachFiftyWorkers(t *testing.T) {
	for _, c := range []struct {
		strategy             affinity.Strategy
		relays, workers      int
		slack, least, places int // at least this many workers are in the range; places that are kept
	}{
		{affinity.Projection, 10, 100, 2, 30, 2},
		{affinity.Projection, 10, 1000, 2, 300, 12},
		{affinity.Projection, 10, 1000, 1, 300, 6},
		{affinity.Projection, 10, 1000, 0, 300, 0},
		{affinity.Rendezvous, 10, 1000, 2, 200, 2},
	} {
		cfg := affinity.PlanConfig{Service: "s", Strategy: c.strategy, Relays: someRelays(c.relays), Workers: someWorkers(c.workers), RelaysPerService: c.relays}
		p := mustPlan(t, cfg)
		assignments, err := p.Assignments(0)
		if err != nil || len(assignments) < c.least {
			t.Fatalf("%d workers in the range, %v", len(assignments), err)
		}
		for _, worker := range p.Workers() {
			d := p.Distance(0, worker)
			if want := d > 0 && d <= c.places; p.Keeps(0, worker, c.slack) != want {
				t.Errorf("%v, %d workers, slack %d: %s, %d places outside: kept is %t", c.strategy, c.workers, c.slack, worker, d, !want)
			}
		}
		if p.Keeps(0, "absent", 9) || p.Keeps(len(p.Affine()), p.Workers()[0], 9) {
			t.Error("a pair that does not exist is kept")
		}
	}
}

func TestTheRingIsDrawn(t *testing.T) {
	small := mustPlan(t, affinity.PlanConfig{Service: "billing", Relays: someRelays(5), Workers: someWorkers(12), IndexSource: affinity.IndexRank})
	large := mustPlan(t, affinity.PlanConfig{Service: "billing", Relays: someRelays(30), RelaysPerService: 30, Workers: someWorkers(1000), IndexSource: affinity.IndexRank})
	got := small.Draw("relay-1", "worker-3") + large.Draw(large.Affine()[7], "") + mustPlan(t, threeDatacenters()).Draw("r-fra-1", "w-nyc-2") +
		small.Draw("relay-99", "worker-3")
	const want = `billing: ring of 12 workers, 5 relays (home)
> relay-1 #######.....
  relay-2 ..########..
  relay-0 .....#######
  relay-4 ##.....#####
  relay-3 #####.....##
                  ^ worker-3, position 8
billing: ring of 1000 workers, about 17 to a column, 30 relays (home)
  3 relays before
  relay-24 ......######................................................
  relay-15 .......+#####+..............................................
  relay-29 ..........######............................................
  relay-27 ............######..........................................
> relay-9  .............+#####+........................................
  relay-2  ................######......................................
  relay-14 ..................######....................................
  relay-18 ...................+#####+..................................
  relay-16 ......................######................................
  18 relays after
billing: ring of 8 workers, 4 relays (home)
  r-fra-2 ######..
  r-fra-0 ..######
  r-fra-3 ##..####
> r-fra-1 ####..##
`
	if got != want {
		t.Errorf("got:\n%s", got)
	}
}
