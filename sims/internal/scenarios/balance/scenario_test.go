package balance

import (
	"fmt"
	"math"
	"testing"

	"github.com/ringway/ringway/ring"
	"github.com/ringway/ringway/sims/internal/scenario/scenariotest"
)

func TestEachPromiseCanFail(t *testing.T) {
	scenariotest.EachCanFail(t, New(), map[string]scenariotest.Break{
		// The source's own test places its nodes evenly.
		asKnown: {Scenario: with(subject{largest: func(int, int, string) (float64, error) { return 1, nil }})},
		warm:    {Set: []string{"samples=1", "vnodes=1", "ring-endpoints=10"}},
		cold:    {Set: []string{"samples=1", "vnodes=1", "ring-endpoints=10"}},
		full:    {Set: []string{"samples=1", "endpoints=20", "ring-endpoints=10"}},
	})
}

func TestItHoldsWithOtherSeedsOfChance(t *testing.T) {
	for _, set := range []string{"jitter=0", "samples=3", "vnodes=64", "endpoints=300"} {
		scenariotest.Holds(t, New(), set, "ring-endpoints=10", "rings=4")
	}
}

func TestItRepeats(t *testing.T) { scenariotest.Repeats(t, New(), "ring-endpoints=10,20") }

// Picks at even steps measure arcs: compared with the arcs themselves, added up from the positions.
func TestPicksMeasureTheArcs(t *testing.T) {
	const v, n, names = 8, 50, "arcs"
	owner := map[uint64]int{}
	var positions []uint64
	for i := range n {
		for seed := range v {
			p := ring.Hash(fmt.Sprintf("%s-worker-%d", names, i), uint64(seed))
			owner[p] = i
			positions = append(positions, p)
		}
	}
	shares := make([]float64, n)
	for _, p := range positions {
		before := uint64(0)
		gap := uint64(math.MaxUint64)
		for _, q := range positions {
			if d := p - q; d > 0 && d < gap {
				gap, before = d, q
			}
		}
		shares[owner[p]] += float64(p-before) / (1 << 64)
	}
	want := 0.0
	for _, s := range shares {
		want = max(want, s*n)
	}
	got, err := largestShare(v, n, names)
	if err != nil || math.Abs(got-want) > 0.01*want {
		t.Errorf("%.3f from picks, %.3f from arcs, %v", got, want, err)
	}
}
