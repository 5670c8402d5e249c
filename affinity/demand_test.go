package affinity_test

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/ringway/ringway/affinity"
	"pgregory.net/rapid"
)

// supplies is the traffic of the affine relays in units of their mean, computed anew.
func supplies(p *affinity.Plan, relays []affinity.Relay) []float64 {
	traffic := map[string]float64{}
	sum, known := 0.0, 0.0
	for _, r := range relays {
		if _, affine := p.Index(r.ID); affine && r.Traffic > 0 {
			sum, known = sum+float64(r.Traffic), known+1
			traffic[r.ID] = float64(r.Traffic)
		}
	}
	out, total := make([]float64, len(p.Affine())), 0.0
	for i, id := range p.Affine() {
		out[i] = 1
		if traffic[id] > 0 {
			out[i] = min(max(traffic[id]*known/sum, 0.25), 4)
		}
		total += out[i]
	}
	for i := range out {
		out[i] *= float64(len(out)) / total
	}
	return out
}

// loadsOf returns the load of each worker as a multiple of its share by weight.
func loadsOf(t rapid.TB, p *affinity.Plan, cfg affinity.PlanConfig) map[string]float64 {
	t.Helper()
	supply, load, weights, total := supplies(p, cfg.Relays), map[string]float64{}, 0.0, 0.0
	for i := range p.Affine() {
		assignments, err := p.Assignments(i)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range assignments {
			load[a.Worker] += a.Weight * supply[i]
		}
		total += supply[i]
	}
	weight := func(w affinity.Worker) float64 {
		if w.Weight == 0 {
			return affinity.DefaultWeight
		}
		return float64(w.Weight)
	}
	for _, w := range cfg.Workers {
		weights += weight(w)
	}
	for _, w := range cfg.Workers {
		load[w.ID] /= weight(w) / weights * total
	}
	return load
}

// The largest load of a worker is the best possible: no set of relays exists whose traffic,
// divided by the weight of all workers that they reach, is larger (the dual of the linear
// program). All sets of up to ten relays are tried.
func TestTheFullestWorkerIsAsLittleLoadedAsTheConnectionsAllow(t *testing.T) {
	check := func(t rapid.TB, cfg affinity.PlanConfig) {
		p, err := affinity.NewPlan(cfg)
		if err != nil {
			t.Fatal(err)
		}
		load := loadsOf(t, p, cfg)
		for w, said := range p.Loads() {
			if want := load[p.Workers()[w]]; math.Abs(said-want) > 1e-9 {
				t.Fatalf("Loads says %v of %s, want %v", said, p.Workers()[w], want)
			}
		}
		most, weights, total, bound := 0.0, 0.0, 0.0, 0.0
		weight := map[string]float64{}
		for _, w := range cfg.Workers {
			weight[w.ID] = affinity.DefaultWeight
			if w.Weight > 0 {
				weight[w.ID] = float64(w.Weight)
			}
			weights += weight[w.ID]
			most = max(most, load[w.ID])
		}
		supply := supplies(p, cfg.Relays)
		reach := make([]map[string]bool, len(supply))
		for i := range supply {
			total += supply[i]
			reach[i] = map[string]bool{}
			assignments, _ := p.Assignments(i)
			for _, a := range assignments {
				reach[i][a.Worker] = true
			}
		}
		for set := uint(1); set < 1<<len(supply); set++ {
			sum, reached := 0.0, map[string]bool{}
			for rest := set; rest != 0; rest &= rest - 1 {
				i := bits.TrailingZeros(rest)
				sum += supply[i] / total
				for w := range reach[i] {
					reached[w] = true
				}
			}
			capacity := 0.0
			for w := range reached {
				capacity += weight[w] / weights
			}
			bound = max(bound, sum/capacity)
		}
		if math.Abs(most/bound-1) > 1e-6 {
			t.Fatalf("the fullest worker gets %.7f times its share, %.7f is possible: %+v", most, bound, cfg)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		cfg := inOneZone(anyFleet.Draw(t, "fleet"))
		cfg.Relays = cfg.Relays[:min(len(cfg.Relays), 10)]
		for i := range cfg.Relays {
			cfg.Relays[i].Traffic = rapid.IntRange(0, 20).Draw(t, "traffic")
		}
		check(t, cfg)
	})
}

// Relays of 0.5 to 1.5 of the mean traffic, and three classes of 0.3, 1 and 1.7. By rendezvous
// every worker gets its share. By projection the loads are those of the prototype in the design:
// neighbouring relays with much traffic reach the same workers.
func TestLoadsStayNearTheMeanWhenRelaysCarryUnequalTraffic(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for name, traffic := range map[string]func(i int) int{
		"uniform": func(int) int { return 500 + random.IntN(1001) },
		"classes": func(i int) int { return []int{300, 1000, 1700}[i%3] },
	} {
		for strategy, want := range map[affinity.Strategy]map[string]float64{
			affinity.Projection: {"uniform": 1.12, "classes": 1.30},
			affinity.Rendezvous: {"uniform": 1.01, "classes": 1.01},
		} {
			cfg := affinity.PlanConfig{Service: "billing", Relays: someRelays(288), RelaysPerService: 288, Workers: someWorkers(20_000), Strategy: strategy}
			for i := range cfg.Relays {
				cfg.Relays[i].Traffic = traffic(i)
			}
			p := mustPlan(t, cfg)
			least, most := math.Inf(1), 0.0
			for _, load := range loadsOf(t, p, cfg) {
				least, most = min(least, load), max(most, load)
			}
			t.Logf("%s, %s: %.4f to %.4f", name, strategy, least, most)
			if most > want[name] {
				t.Errorf("%s, %s: the fullest worker gets %.3f times its share, want at most %.2f", name, strategy, most, want[name])
			}
		}
	}
}

// Within a zone, traffic is about weights: it opens and closes nothing.
func TestAChangeOfTrafficMovesNoConnection(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := inOneZone(anyFleet.Draw(t, "fleet"))
		before, err := affinity.NewPlan(cfg)
		if err != nil {
			t.Fatal(err)
		}
		for i := range cfg.Relays {
			cfg.Relays[i].Traffic = rapid.IntRange(0, 1000).Draw(t, "traffic")
		}
		after, err := affinity.NewPlan(cfg)
		if err != nil {
			t.Fatal(err)
		}
		for i := range before.Affine() {
			x, _ := before.Assignments(i)
			y, _ := after.Assignments(i)
			for j := range x {
				if len(x) != len(y) || x[j].Worker != y[j].Worker {
					t.Fatalf("relay %d: %v became %v", i, x, y)
				}
			}
		}
	})
}

// A relay that states that it carries a million times as much as the others counts four times.
func TestALieAboutTrafficCountsFourTimesTheMeanAtMost(t *testing.T) {
	cfg := affinity.PlanConfig{Service: "billing", Relays: someRelays(8), Workers: someWorkers(100)}
	for i := range cfg.Relays {
		cfg.Relays[i].Traffic = 10
	}
	plans := map[int]string{}
	for _, lie := range []int{1_000, 1_000_000} {
		cfg.Relays[0].Traffic = lie
		p := mustPlan(t, cfg)
		assignments, err := p.Assignments(3)
		if err != nil {
			t.Fatal(err)
		}
		plans[lie] = fmt.Sprint(assignments)
	}
	if plans[1_000] != plans[1_000_000] {
		t.Errorf("a larger lie has more effect:\n%s\n%s", plans[1_000], plans[1_000_000])
	}
}
