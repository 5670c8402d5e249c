package peering_test

import (
	"reflect"
	"testing"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/peering"
	"github.com/ringway/ringway/ring"
	"pgregory.net/rapid"
)

// Workers in ring order, and the plan before, save time and change nothing.
func TestAPlanWithAbsentMembersIsTheSameFromAnyStart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		relays, names := ids("r", rapid.IntRange(1, 50).Draw(t, "relays")), ids("w", rapid.IntRange(1, 200).Draw(t, "workers"))
		goneRelays, goneWorkers := rapid.IntRange(0, min(5, len(relays)-1)).Draw(t, "gone relays"), rapid.IntRange(0, min(9, len(names)-1)).Draw(t, "gone workers")
		cfg := affinity.PlanConfig{
			Service: "s", Relays: affinity.Relays(relays), Workers: affinity.Workers(names),
			Strategy: rapid.SampledFrom([]affinity.Strategy{affinity.Projection, affinity.Rendezvous}).Draw(t, "strategy"),
		}
		before, err := affinity.NewPlan(cfg)
		if err != nil {
			t.Fatal(err)
		}
		absent := peering.Absent{Relays: cfg.Relays[:goneRelays:goneRelays], Workers: cfg.Workers[:goneWorkers:goneWorkers]}
		cfg.Relays, cfg.Workers = cfg.Relays[goneRelays:], cfg.Workers[goneWorkers:]
		want, err := peering.Plan(cfg, absent)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Workers, cfg.WorkersOrdered, cfg.Previous = affinity.Workers(ring.Order("s", names[goneWorkers:])), true, before
		got, err := peering.Plan(cfg, absent)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("the plan differs: workers %q, want %q", got.Workers(), want.Workers())
		}
	})
}
