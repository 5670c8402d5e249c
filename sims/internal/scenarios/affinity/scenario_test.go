package affinity

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/sims/internal/fleet"
	"github.com/ringway/ringway/sims/internal/report"
	"github.com/ringway/ringway/sims/internal/scenario"
	"github.com/ringway/ringway/sims/internal/scenario/scenariotest"
)

// real is the subject as it is, to break one thing of.
func real() subject {
	var sub subject
	sub.strategies = fleet.Strategies()
	sub.rangeOf = func(s affinity.Shape, index int) (int, int, error) {
		r, err := s.Range(index)
		return r.Start(), r.Len(), err
	}
	sub.weights = func(dst []float64, s affinity.Shape, index int) ([]float64, error) {
		return s.AppendWeights(dst, index)
	}
	return sub
}

// floating is the range as a port with floating point would compute it.
func floating(s affinity.Shape, i int) (start, length int, err error) {
	ratio := float64(s.Workers) / float64(s.Relays)
	size := max(float64(s.PeersPerRelay), float64(s.PeersPerWorker)*ratio)
	if size >= float64(s.Workers) {
		return 0, s.Workers, nil
	}
	round := func(v float64) int { return int(v + 0.5) }
	start = round(float64(i) * ratio)
	return start % s.Workers, round(float64(i)*ratio+size) - start, nil
}

// replaced has another way to connect in place of one of ours.
func replaced(name string, connect func(*fleet.Graph, fleet.Size, fleet.Fleet) error) scenario.Scenario {
	sub := real()
	i := slices.IndexFunc(sub.strategies, func(st fleet.Strategy) bool { return st.Name == name })
	sub.strategies[i].Connect, sub.strategies[i].Spares = connect, 1
	return with(sub)
}

func other(name string) func(*fleet.Graph, fleet.Size, fleet.Fleet) error {
	all := fleet.Strategies()
	return all[slices.IndexFunc(all, func(st fleet.Strategy) bool { return st.Name == name })].Connect
}

func TestEachPromiseCanFail(t *testing.T) {
	float := real()
	float.rangeOf = floating
	short := real()
	short.rangeOf = func(s affinity.Shape, i int) (int, int, error) {
		start, length, err := real().rangeOf(s, i)
		return start, min(length, max(0, s.PeersPerRelay-1)), err
	}
	even := real()
	even.weights = func(dst []float64, s affinity.Shape, index int) ([]float64, error) {
		r, err := s.Range(index)
		for range r.Len() {
			dst = append(dst, 1/float64(r.Len()))
		}
		return dst, err
	}
	small := []string{"sweep-relays=20", "sweep-workers=80", "stride=1"}
	scenariotest.EachCanFail(t, New(), map[string]scenariotest.Break{
		// R = 10, W = 61, m = 3 is the smallest that floating point gets wrong.
		covered:   {Scenario: with(float), Set: small},
		supplied:  {Scenario: with(short), Set: small},
		fewest:    {Scenario: replaced(fleet.ByRank, other("Hyperbahn, production")), Set: small},
		evenOver:  {Scenario: replaced(fleet.ByRank, other("Hyperbahn, description")), Set: small},
		evenRange: {Scenario: replaced(fleet.ByRank, fleet.Plan(affinity.PlanConfig{Strategy: affinity.Rendezvous})), Set: small},
		balanced:  {Scenario: replaced(fleet.BySlot, other("Hyperbahn, description")), Set: []string{"fleets=50x1009x3", "sweep-relays=5"}},
		exact:     {Scenario: with(even), Set: small},
		floor:     {Scenario: replaced(fleet.Rendezvous, lopsided), Set: small},
	})
}

// lopsided gives the first relay hardly anything.
func lopsided(g *fleet.Graph, s fleet.Size, f fleet.Fleet) error {
	for _, w := range f.Workers {
		for i := range s.PerWorker {
			relay := 1 + (w+i)%(len(f.Relays)-1)
			if w < 3 && i == 0 {
				relay = 0
			}
			g.Connect(relay, w, 1/float64(len(f.Workers)))
		}
	}
	return nil
}

func TestItHoldsForEachStrategyOfTheSpectrum(t *testing.T) {
	for _, name := range []string{fleet.ByRank, fleet.BySlot, fleet.Rendezvous} {
		scenariotest.Holds(t, New(), "strategy="+name, "sweep-relays=8", "fleets=10x100x3")
	}
}

func TestItRepeats(t *testing.T) {
	scenariotest.Repeats(t, New(), "fleets=10x100x3", "sweep-relays=16")
}

const page = "../../../../docs/concepts/affinity.md"

func TestThePageShowsWhatTheScenarioMeasures(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	set := []string{"sweep-relays=1", "workers=1"}
	scenariotest.Holds(t, New(), append(set, "fleets="+strings.Join(fleet.Sizes, ","))...)
	// The page has only the fleets that make bench-affinity names.
	onPage := scenariotest.Holds(t, New(), append(set, "fleets=50x1000x3,300x10000x3")...)
	fresh, err := report.UpdatePage(string(text), []*scenario.Result{onPage})
	if err != nil {
		t.Fatal(err)
	}
	if fresh != string(text) {
		t.Errorf("%s is stale: run make bench-affinity", page)
	}
}
