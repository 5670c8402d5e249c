package affinity_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/ringway/ringway/affinity"
)

var large = affinity.Shape{Relays: 300, Workers: 10_000, Minimums: affinity.DefaultMinimums}

func BenchmarkOneRange(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := large.Range(137); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOneRelaysWeights(b *testing.B) {
	var weights []float64
	b.ReportAllocs()
	for b.Loop() {
		weights, _ = large.AppendWeights(weights[:0], 137)
	}
}

func BenchmarkAllRangesAndWeights(b *testing.B) {
	var weights []float64
	b.ReportAllocs()
	for b.Loop() {
		for i := range large.Relays {
			if _, err := large.Range(i); err != nil {
				b.Fatal(err)
			}
			weights, _ = large.AppendWeights(weights[:0], i)
		}
	}
}

func largePlan(change func(*affinity.PlanConfig)) affinity.PlanConfig {
	cfg := affinity.PlanConfig{Service: "billing", Relays: someRelays(300), RelaysPerService: 300,
		Workers: inRingOrder("billing", someWorkers(10_000)), WorkersOrdered: true}
	change(&cfg)
	return cfg
}

var largePlans = map[string]affinity.PlanConfig{
	"rank":       largePlan(func(cfg *affinity.PlanConfig) {}),
	"unordered":  largePlan(func(cfg *affinity.PlanConfig) { cfg.Workers, cfg.WorkersOrdered = someWorkers(10_000), false }),
	"slot":       largePlan(func(cfg *affinity.PlanConfig) { cfg.IndexSource = affinity.IndexSlot }),
	"rendezvous": largePlan(func(cfg *affinity.PlanConfig) { cfg.Strategy = affinity.Rendezvous }),
	"weights": largePlan(func(cfg *affinity.PlanConfig) {
		for i := range cfg.Workers {
			cfg.Workers[i].Weight = 10 + 10*(i%2*i%3)
		}
	}),
	"traffic": largePlan(func(cfg *affinity.PlanConfig) {
		cfg.RelaysPerService, cfg.Workers = 0, inRingOrder("billing", someWorkers(20_000))
		for i := range cfg.Relays {
			cfg.Relays[i].Traffic = []int{300, 1000, 1700}[i%3]
		}
	}),
	"traffic that can be balanced": largePlan(func(cfg *affinity.PlanConfig) {
		cfg.RelaysPerService, cfg.Workers = 0, inRingOrder("billing", someWorkers(20_000))
		for i := range cfg.Relays {
			cfg.Relays[i].Traffic = 900 + i*7%200
		}
	}),
	"places": largePlan(func(cfg *affinity.PlanConfig) {
		for i := range cfg.Relays {
			cfg.Relays[i].Datacenter = fmt.Sprint("dc", i%6)
		}
		for i := range cfg.Workers {
			cfg.Workers[i].Datacenter = fmt.Sprint("dc", i%7)
		}
	}),
}

// A relay's own part of a change of membership: the plan and its own assignments.
func BenchmarkPlanOfOneRelay(b *testing.B) {
	for name, cfg := range largePlans {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := mustPlan(b, cfg).Assignments(137); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A relay's own part of one change of the largest fleet, with the plan before the change.
func BenchmarkPlanAfterOneChange(b *testing.B) {
	for _, traffic := range []string{"slot", "traffic", "traffic that can be balanced"} {
		before := largePlans[traffic]
		before.RelaysPerService, before.Workers = 0, inRingOrder("billing", someWorkers(20_000))
		for name, change := range map[string]func(*affinity.PlanConfig){
			"worker":  func(c *affinity.PlanConfig) { c.Workers = slices.Delete(slices.Clone(c.Workers), 777, 778) },
			"relay":   func(c *affinity.PlanConfig) { c.Relays = c.Relays[1:] },
			"traffic": func(c *affinity.PlanConfig) { c.Relays = slices.Clone(c.Relays); c.Relays[1].Traffic += 200 },
		} {
			b.Run(traffic+"/"+name, func(b *testing.B) {
				after := before
				change(&after)
				after.Previous = mustPlan(b, before)
				b.ReportAllocs()
				for b.Loop() {
					if _, err := mustPlan(b, after).Assignments(137); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkPlanOfAllRelays(b *testing.B) {
	for name, cfg := range largePlans {
		b.Run(name, func(b *testing.B) {
			var assignments []affinity.Assignment
			b.ReportAllocs()
			for b.Loop() {
				p := mustPlan(b, cfg)
				for i := range p.Affine() {
					assignments, _ = p.AppendAssignments(assignments[:0], i)
				}
			}
		})
	}
}

func BenchmarkCoverage(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := large.Coverage(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSlots(b *testing.B) {
	for _, c := range []struct {
		name      string
		k, relays int
	}{{"10of300", 10, 300}, {"300of600", 300, 600}, {"300of300", 300, 300}} {
		relays := relayIDs(c.relays)
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				affinity.Slots("billing", c.k, relays)
			}
		})
	}
}
