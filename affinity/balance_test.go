package affinity_test

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/ring"
	"pgregory.net/rapid"
)

// unevenness returns the largest deviation of a worker's load from its share by weight.
func unevenness(t interface {
	Helper()
	Fatal(...any)
}, cfg affinity.PlanConfig) float64 {
	t.Helper()
	p, err := affinity.NewPlan(cfg)
	if err != nil {
		t.Fatal(err)
	}
	load, total := map[string]float64{}, 0
	for i := range p.Affine() {
		assignments, err := p.Assignments(i)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range assignments {
			load[a.Worker] += a.Weight
		}
	}
	weight := func(w affinity.Worker) int {
		if w.Weight == 0 {
			return affinity.DefaultWeight
		}
		return w.Weight
	}
	for _, w := range cfg.Workers {
		total += weight(w)
	}
	worst := 0.0
	for _, w := range cfg.Workers {
		share := float64(weight(w)) / float64(total) * float64(len(p.Affine()))
		worst = max(worst, math.Abs(load[w.ID]/share-1))
	}
	return worst
}

func weighted(cfg affinity.PlanConfig, weight func(*rand.Rand) int) affinity.PlanConfig {
	random := rand.New(rand.NewPCG(1, 2))
	for i := range cfg.Workers {
		cfg.Workers[i].Weight = weight(random)
	}
	return cfg
}

func oneOrTwo(r *rand.Rand) int  { return 10 * (1 + r.IntN(2)) }
func anyWeight(r *rand.Rand) int { return 1 + r.IntN(affinity.MaxWeight) }

// A worker of weight 20 gets twice the load of one of 10, over the whole fleet.
func TestLoadFollowsWeight(t *testing.T) {
	for _, c := range []struct {
		name            string
		relays, workers int
		weight          func(*rand.Rand) int
		strategy        affinity.Strategy
		within          float64
	}{
		{"a small fleet", 10, 100, oneOrTwo, affinity.Projection, 2e-6},
		{"any weight", 10, 200, anyWeight, affinity.Projection, 2e-6},
		{"everything to everything", 3, 10, anyWeight, affinity.Projection, 2e-6},
		{"one relay", 1, 7, anyWeight, affinity.Projection, 2e-6},
		{"fifty relays", 50, 1000, anyWeight, affinity.Projection, 2e-6},
		{"more relays than workers", 100, 20, oneOrTwo, affinity.Projection, 2e-6},
		{"a large ring", 300, 10_000, oneOrTwo, affinity.Projection, 2e-6},
		{"rendezvous", 50, 1000, anyWeight, affinity.Rendezvous, 2e-6},
		{"rendezvous, large", 300, 10_000, anyWeight, affinity.Rendezvous, 2e-6},
	} {
		cfg := weighted(affinity.PlanConfig{Service: "billing", Relays: someRelays(c.relays), RelaysPerService: max(3, c.relays),
			Workers: someWorkers(c.workers), Strategy: c.strategy}, c.weight)
		got := unevenness(t, cfg)
		t.Logf("%s: %.2g", c.name, got)
		if got > c.within {
			t.Errorf("%s: a load is off by %.2g of it, want at most %.2g", c.name, got, c.within)
		}
	}
}

// What no connection can carry is not carried: one worker of 100 among 1s would have to get
// more than the m relays that it has. They give it nearly all they have.
func TestAWorkerTooHeavyForItsRelaysGetsWhatTheyHave(t *testing.T) {
	for _, strategy := range []affinity.Strategy{affinity.Projection, affinity.Rendezvous} {
		cfg := affinity.PlanConfig{Service: "billing", Relays: someRelays(10), Workers: someWorkers(30), Strategy: strategy}
		for i := range cfg.Workers {
			cfg.Workers[i].Weight = 1
		}
		cfg.Workers[4].Weight = 100
		p := mustPlan(t, cfg)
		load := 0.0
		for i := range p.Affine() {
			assignments, err := p.Assignments(i)
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range assignments {
				if math.IsNaN(a.Weight) {
					t.Fatalf("%s: a weight is not a number", strategy)
				}
				if a.Worker == "worker-4" {
					load += a.Weight
				}
			}
		}
		if load < 2.5 || load > 3+1e-9 {
			t.Errorf("%s: three relays give the heavy worker %.2f of their traffic, want nearly all of it", strategy, load)
		}
	}
}

// The weights of rendezvous make loads equal although ranges are not.
func TestRendezvousGivesEveryWorkerTheSameLoad(t *testing.T) {
	for _, c := range [][3]int{{10, 100, 3}, {50, 1009, 3}, {100, 1000, 5}, {1000, 100, 3}, {7, 1000, 3}, {37, 53, 3}, {53, 37, 3}} {
		cfg := affinity.PlanConfig{Service: "billing", Relays: someRelays(c[0]), RelaysPerService: c[0], Workers: someWorkers(c[1]),
			Minimums: affinity.Minimums{PeersPerWorker: c[2], PeersPerRelay: 3}, Strategy: affinity.Rendezvous}
		p := mustPlan(t, cfg)
		if p.Strategy() != affinity.Rendezvous || p.Fallback() != "" {
			t.Errorf("%v: %s %s", c, p.Strategy(), p.Fallback())
		}
		if got := unevenness(t, cfg); got > 2e-6 {
			t.Errorf("%v: a load is off by %.2g", c, got)
		}
		coverage, mean := p.Coverage(), c[2]*c[1]/c[0]
		if coverage.Min < c[2] || coverage.MinPerRelay < max(3, mean*6/10) {
			t.Errorf("%v: at least %d relays per worker and %d workers per relay", c, coverage.Min, coverage.MinPerRelay)
		}
		if ranges, err := p.Ranges(0); err != nil || ranges != nil {
			t.Errorf("%v: ranges %v, %v; want none", c, ranges, err)
		}
	}
}

// The dumb reference for the connections of rendezvous: sort all relays for each worker,
// then all workers for each relay that came out short.
func TestRendezvousTakesTheBestRelaysAndTheFloor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		relays, workers := rapid.IntRange(4, 30).Draw(t, "relays"), rapid.IntRange(4, 60).Draw(t, "workers")
		m, least := rapid.IntRange(3, 5).Draw(t, "m"), rapid.IntRange(1, 4).Draw(t, "p")
		cfg := affinity.PlanConfig{Service: "s", Relays: someRelays(relays), RelaysPerService: max(m, relays), Workers: someWorkers(workers),
			Minimums: affinity.Minimums{PeersPerWorker: m, PeersPerRelay: least}, Strategy: affinity.Rendezvous}
		p, err := affinity.NewPlan(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if p.Strategy() != affinity.Rendezvous || m >= relays || least >= workers {
			return
		}
		want := slowRendezvous(p, m, least)
		got := map[[2]string]bool{}
		for i, relay := range p.Affine() {
			assignments, err := p.Assignments(i)
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range assignments {
				got[[2]string{relay, a.Worker}] = true
			}
		}
		if !maps.Equal(got, want) {
			t.Fatalf("%d connections, want %d: %v is not %v", len(got), len(want), got, want)
		}
	})
}

func slowRendezvous(p *affinity.Plan, m, least int) map[[2]string]bool {
	score := func(relay, worker string) uint64 {
		return splitMix(ring.Hash(relay, ring.Hash(p.Service(), 0)) ^ ring.Hash(worker, ring.Hash(p.Service()+"~", 0)))
	}
	out := map[[2]string]bool{}
	degree := map[string]int{}
	for _, worker := range p.Workers() {
		relays := slices.Clone(p.Affine())
		slices.SortFunc(relays, func(a, b string) int { return cmp.Compare(score(b, worker), score(a, worker)) })
		for _, relay := range relays[:m] {
			out[[2]string{relay, worker}] = true
			degree[relay]++
		}
	}
	floor := int(math.Ceil(0.6 * float64(m*len(p.Workers())) / float64(len(p.Affine()))))
	for _, relay := range p.Affine() {
		workers := slices.Clone(p.Workers())
		slices.SortFunc(workers, func(a, b string) int { return cmp.Compare(score(relay, b), score(relay, a)) })
		for _, worker := range workers {
			if pair := [2]string{relay, worker}; degree[relay] < max(floor, least) && !out[pair] {
				out[pair] = true
				degree[relay]++
			}
		}
	}
	return out
}

// A relay and a worker that leave take their own connections along and no others.
func TestRendezvousMovesOnlyWhatItMust(t *testing.T) {
	cfg := affinity.PlanConfig{Service: "billing", Relays: someRelays(20), RelaysPerService: 30, Workers: someWorkers(400), Strategy: affinity.Rendezvous}
	before := connections(t, mustPlan(t, cfg))
	without := cfg
	without.Workers = cfg.Workers[1:]
	if n := moved(before, connections(t, mustPlan(t, without))); n != 3 {
		t.Errorf("a worker that leaves moves %d connections, want its own 3", n)
	}
	without = cfg
	without.Relays = cfg.Relays[1:]
	own := 0
	for pair := range before {
		if pair[0] == cfg.Relays[0].ID {
			own++
		}
	}
	if n := moved(before, connections(t, mustPlan(t, without))); n != 2*own {
		t.Errorf("a relay with %d workers that leaves moves %d connections, want them closed and replaced", own, n)
	}
}

// Within a zone, a weight is about traffic: it opens and closes nothing, not even by a fallback.
func TestAChangeOfWeightMovesNoConnection(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := inOneZone(anyFleet.Draw(t, "fleet"))
		a, errA := affinity.NewPlan(cfg)
		for i := range cfg.Workers {
			cfg.Workers[i].Weight = rapid.IntRange(1, affinity.MaxWeight).Draw(t, "weight")
		}
		b, errB := affinity.NewPlan(cfg)
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		if a.Strategy() != b.Strategy() || a.Fallback() != b.Fallback() {
			t.Fatalf("%s %q became %s %q", a.Strategy(), a.Fallback(), b.Strategy(), b.Fallback())
		}
		for i := range a.Affine() {
			x, _ := a.Assignments(i)
			y, _ := b.Assignments(i)
			for j := range x {
				if len(x) != len(y) || x[j].Worker != y[j].Worker {
					t.Fatalf("relay %d: %v became %v", i, x, y)
				}
			}
		}
	})
}

// Two workers and six relays that hold one each: where the hashes split them four to two,
// no weights help.
func TestRendezvousThatCannotBeBalancedFallsBackToProjection(t *testing.T) {
	fell := 0
	for i := range 20 {
		cfg := affinity.PlanConfig{Service: fmt.Sprint("service", i), Relays: someRelays(6), Workers: someWorkers(2),
			Minimums: affinity.Minimums{PeersPerWorker: 3, PeersPerRelay: 1}, Strategy: affinity.Rendezvous}
		p := mustPlan(t, cfg)
		if p.Fallback() == "" {
			continue
		}
		fell++
		cfg.Strategy = affinity.Projection
		projection := mustPlan(t, cfg)
		if p.Strategy() != affinity.Projection || !maps.Equal(connections(t, p), connections(t, projection)) {
			t.Errorf("%s: %s with %v, want the projection", cfg.Service, p.Strategy(), connections(t, p))
		}
	}
	if fell == 0 || fell == 20 {
		t.Errorf("%d of 20 fell back, want some", fell)
	}
}

// Datacenters that share relays are balanced together: without slack, 12 relays give 150 workers
// the same, whichever side of the border these are.
func TestLoadIsEqualOverDatacentersThatShareRelays(t *testing.T) {
	cfg := affinity.PlanConfig{Service: "billing", RelaysPerService: 100, ZoneSlack: 1}
	add := func(dc string, relays, workers int) {
		for i := range relays {
			cfg.Relays = append(cfg.Relays, affinity.Relay{ID: fmt.Sprint("r-", dc, i), Place: affinity.Place{Datacenter: dc, Region: "eu"}})
		}
		for i := range workers {
			cfg.Workers = append(cfg.Workers, affinity.Worker{ID: fmt.Sprint("w-", dc, i), Place: affinity.Place{Datacenter: dc, Region: "eu"}})
		}
	}
	add("a", 2, 50)
	add("b", 10, 100)
	for _, strategy := range []affinity.Strategy{affinity.Projection, affinity.Rendezvous} {
		cfg.Strategy = strategy
		if got := unevenness(t, cfg); got > 2e-6 {
			t.Errorf("%s: a load is off by %.2g", strategy, got)
		}
	}
}

// Pinned to the last bit, so that relays of two builds and of two processors agree on who
// connects to which worker, and on whether weights can be found.
func TestRendezvousIsPinned(t *testing.T) {
	p := mustPlan(t, affinity.PlanConfig{Service: "billing", Relays: someRelays(5), Workers: someWorkers(8), Strategy: affinity.Rendezvous, IndexSource: affinity.IndexRank})
	assignments, err := p.Assignments(2)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(p.Affine()[2], assignments), "relay-0[{worker-6 0.17296016543852627} {worker-2 0.17296016543852627} {worker-7 0.149563271939232} {worker-3 0.15353568201996667} {worker-0 0.1116205840995614} {worker-5 0.08979685912495534} {worker-4 0.149563271939232}]"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
