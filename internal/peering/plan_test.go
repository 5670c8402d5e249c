package peering_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/peering"
	"pgregory.net/rapid"
)

func ids(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%s%03d", prefix, i)
	}
	return out
}

// connections returns which relay is connected to which worker, as "relay worker".
func connections(t testing.TB, plan *affinity.Plan) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for i, relay := range plan.Affine() {
		row, err := plan.Assignments(i)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range row {
			out[relay+" "+a.Worker] = true
		}
	}
	return out
}

func TestWhileAMemberIsAbsentNoOtherMoves(t *testing.T) {
	relays, workers := affinity.Relays(ids("r", 20)), affinity.Workers(ids("w", 200))
	cfg := affinity.PlanConfig{Service: "s", Relays: relays, Workers: workers, RelaysPerService: 20}
	before, err := affinity.NewPlan(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, gone := range []struct {
		name    string
		present affinity.PlanConfig
		absent  peering.Absent
	}{
		{"a relay", affinity.PlanConfig{Relays: relays[1:], Workers: workers}, peering.Absent{Relays: relays[:1]}},
		{"a worker", affinity.PlanConfig{Relays: relays, Workers: workers[1:]}, peering.Absent{Workers: workers[:1]}},
		{"one of each", affinity.PlanConfig{Relays: relays[1:], Workers: workers[1:]}, peering.Absent{Relays: relays[:1], Workers: workers[:1]}},
	} {
		gone.present.Service, gone.present.RelaysPerService = "s", 20
		during, err := peering.Plan(gone.present, gone.absent)
		if err != nil {
			t.Fatal(err)
		}
		if was, is := connections(t, before), connections(t, during); !equal(was, is) {
			t.Errorf("%s is absent: connections moved", gone.name)
		}
		without, err := peering.Plan(gone.present, peering.Absent{})
		if err != nil {
			t.Fatal(err)
		}
		if was, is := connections(t, before), connections(t, without); equal(was, is) {
			t.Errorf("%s is gone for good: nothing moved", gone.name)
		}
	}
}

func equal(a, b map[string]bool) bool {
	if len(a) != len(b) {
		return false
	}
	for k := range a {
		if !b[k] {
			return false
		}
	}
	return true
}

func TestAServiceWhoseWorkersAreAllReplacedIsServedByTheNewOnes(t *testing.T) {
	plan, err := peering.Plan(affinity.PlanConfig{Service: "s", Relays: affinity.Relays(ids("r", 3)), Workers: affinity.Workers(ids("new", 2))},
		peering.Absent{Workers: affinity.Workers(ids("old", 30))})
	if err != nil {
		t.Fatal(err)
	}
	if got := plan.Coverage(); got.MinPerRelay < 2 {
		t.Errorf("a relay has %d workers: want the 2 that are there", got.MinPerRelay)
	}
}

// Whatever is gone, those who are there stay connected: m-1 relays for every worker
// and p workers for every relay, as far as there are that many.
func TestTheAbsentNeverCostMoreThanOneRelayOfAWorker(t *testing.T) {
	kept := 0
	rapid.Check(t, func(rt *rapid.T) {
		relays := affinity.Relays(ids("r", rapid.IntRange(1, 12).Draw(rt, "relays")))
		workers := affinity.Workers(ids("w", rapid.IntRange(1, 40).Draw(rt, "workers")))
		goneRelays, goneWorkers := rapid.IntRange(0, len(relays)-1).Draw(rt, "gone relays"), rapid.IntRange(0, len(workers)-1).Draw(rt, "gone workers")
		cfg := affinity.PlanConfig{
			Service: "s", Relays: relays[goneRelays:], Workers: workers[goneWorkers:], RelaysPerService: max(3, len(relays)),
			IndexSource: rapid.SampledFrom([]affinity.IndexSource{affinity.IndexRank, affinity.IndexSlot}).Draw(rt, "index"),
			Strategy:    rapid.SampledFrom([]affinity.Strategy{affinity.Projection, affinity.Rendezvous}).Draw(rt, "strategy"),
		}
		plan, err := peering.Plan(cfg, peering.Absent{Relays: relays[:goneRelays], Workers: workers[:goneWorkers]})
		if err != nil {
			rt.Fatal(err)
		}
		if len(plan.Affine()) > len(cfg.Relays) || len(plan.Workers()) > len(cfg.Workers) {
			kept++
		}
		isThere := func(id string) bool {
			return slices.ContainsFunc(cfg.Relays, func(r affinity.Relay) bool { return r.ID == id })
		}
		perWorker := map[string]int{}
		for i, relay := range plan.Affine() {
			row, err := plan.Assignments(i)
			if err != nil {
				rt.Fatal(err)
			}
			own := 0
			for _, a := range row {
				if slices.ContainsFunc(cfg.Workers, func(w affinity.Worker) bool { return w.ID == a.Worker }) {
					own++
					if isThere(relay) {
						perWorker[a.Worker]++
					}
				}
			}
			if want := min(3, len(cfg.Workers)); isThere(relay) && own < want {
				rt.Errorf("relay %s has %d workers: want %d", relay, own, want)
			}
		}
		for _, w := range cfg.Workers {
			if want := min(2, len(cfg.Relays)); perWorker[w.ID] < want {
				rt.Errorf("worker %s has %d relays: want %d", w.ID, perWorker[w.ID], want)
			}
		}
	})
	if kept == 0 {
		t.Error("no absent member ever counted: the property says nothing")
	}
}
