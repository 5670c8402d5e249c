package routing

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/ringway/ringway/affinity"
)

func TestNoWorkerIsLeftOutWhenEveryRelayNarrowsItsRangeAsFarAsItMay(t *testing.T) {
	narrowed := 0
	rapid.Check(t, func(t *rapid.T) {
		place := rapid.Custom(func(t *rapid.T) affinity.Place {
			return affinity.Place{Datacenter: rapid.SampledFrom([]string{"a", "a", "a", "b", "c"}).Draw(t, "dc"), Region: "r"}
		})
		if rapid.Bool().Draw(t, "one place") {
			place = rapid.Just(affinity.Place{})
		}
		cfg := affinity.PlanConfig{
			Service: "echo", RelaysPerService: 100,
			Minimums: affinity.Minimums{PeersPerWorker: rapid.IntRange(3, 5).Draw(t, "m"), PeersPerRelay: rapid.IntRange(1, 5).Draw(t, "p")},
			Strategy: rapid.SampledFrom([]affinity.Strategy{affinity.Projection, affinity.Projection, affinity.Rendezvous}).Draw(t, "strategy"),
		}
		for i := range rapid.IntRange(1, 20).Draw(t, "relays") {
			cfg.Relays = append(cfg.Relays, affinity.Relay{ID: fmt.Sprintf("r%d", i), Place: place.Draw(t, "place")})
		}
		for i := range rapid.IntRange(1, 60).Draw(t, "workers") {
			cfg.Workers = append(cfg.Workers, affinity.Worker{ID: fmt.Sprintf("w%d", i), Place: place.Draw(t, "place"), Weight: rapid.SampledFrom([]int{10, 10, 20}).Draw(t, "weight")})
		}
		plan, err := affinity.NewPlan(cfg)
		if err != nil {
			t.Fatal(err)
		}
		covered := map[string]bool{}
		for i := range plan.Affine() {
			assignments, err := plan.Assignments(i)
			if err != nil {
				t.Fatal(err)
			}
			n := plan.Spacing(i)
			if n == 0 {
				n = len(assignments)
			}
			if n < len(assignments) {
				narrowed++
			}
			for _, a := range assignments[:min(n, len(assignments))] {
				covered[a.Worker] = true
			}
		}
		for _, w := range plan.Workers() {
			if !covered[w] {
				t.Fatalf("%s gets nothing", w)
			}
		}
	})
	if narrowed == 0 {
		t.Error("no range was ever narrowed: this test shows nothing")
	}
}

// Of 100 workers and 10 relays each must use 10, of the 30 that it is connected to.
func TestTheLeastIsTheDistanceBetweenTwoRanges(t *testing.T) {
	cfg := affinity.PlanConfig{Service: "echo"}
	for i := range 10 {
		cfg.Relays = append(cfg.Relays, affinity.Relay{ID: fmt.Sprintf("r%d", i)})
	}
	for i := range 100 {
		cfg.Workers = append(cfg.Workers, affinity.Worker{ID: fmt.Sprintf("w%d", i)})
	}
	plan, err := affinity.NewPlan(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		if n := plan.Spacing(i); n != 10 {
			t.Errorf("relay %d: %d, want 10", i, n)
		}
	}
}
