package affinity_test

import (
	"testing"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/ring"
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

// A relay's own part of a change of membership: the plan and its own assignments.
func BenchmarkPlanOfOneRelay(b *testing.B) {
	for name, cfg := range map[string]affinity.PlanConfig{
		"ordered":   {Workers: ring.Order("billing", workerIDs(10_000)), WorkersOrdered: true},
		"unordered": {Workers: workerIDs(10_000)},
		"slots":     {Workers: ring.Order("billing", workerIDs(10_000)), WorkersOrdered: true, IndexSource: affinity.IndexSlot},
	} {
		b.Run(name, func(b *testing.B) {
			cfg.Service, cfg.Relays, cfg.RelaysPerService = "billing", relayIDs(300), 300
			b.ReportAllocs()
			for b.Loop() {
				if _, err := mustPlan(b, cfg).Assignments(137); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkPlanOfAllRelays(b *testing.B) {
	cfg := affinity.PlanConfig{Service: "billing", Relays: relayIDs(300), RelaysPerService: 300,
		Workers: ring.Order("billing", workerIDs(10_000)), WorkersOrdered: true}
	var weights []float64
	b.ReportAllocs()
	for b.Loop() {
		p := mustPlan(b, cfg)
		for i := range p.Affine() {
			if _, err := p.Range(i); err != nil {
				b.Fatal(err)
			}
			weights, _ = p.AppendWeights(weights[:0], i)
		}
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
