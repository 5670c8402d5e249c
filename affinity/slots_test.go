package affinity_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/ring"
	"pgregory.net/rapid"
)

func relayIDs(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("relay-%d", i)
	}
	return ids
}

// splitMix is the finalizer of SplitMix64 as published.
func splitMix(z uint64) uint64 {
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return z ^ (z >> 31)
}

// slowSlots is the dumb reference: sort every pair, take the best pair whose slot and relay
// are both free, again and again.
func slowSlots(service string, k int, relays []string) []string {
	type pair struct {
		score uint64
		slot  int
		relay string
	}
	k = min(k, len(relays))
	var pairs []pair
	for slot := range k {
		for _, relay := range relays {
			score := splitMix(ring.Hash(relay, ring.Hash(service, 0)) ^ ring.Hash(fmt.Sprintf("%s~%d", service, slot), 0))
			pairs = append(pairs, pair{score, slot, relay})
		}
	}
	slices.SortFunc(pairs, func(a, b pair) int {
		return cmp.Or(-cmp.Compare(a.score, b.score), cmp.Compare(a.relay, b.relay), cmp.Compare(a.slot, b.slot))
	})
	out, used := make([]string, k), map[string]bool{}
	for _, p := range pairs {
		if out[p.slot] == "" && !used[p.relay] {
			out[p.slot] = p.relay
			used[p.relay] = true
		}
	}
	return out
}

func TestSlotsTakeTheBestPairFirst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		relays := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,2}[0-9]{1,2}`), 1, 60, rapid.ID[string]).Draw(t, "relays")
		k := rapid.IntRange(1, 70).Draw(t, "k")
		service := rapid.StringMatching(`[a-z]{1,5}`).Draw(t, "service")
		want := slowSlots(service, k, relays)
		input := rapid.Permutation(relays).Draw(t, "permuted")
		kept := slices.Clone(input)
		if got := affinity.Slots(service, k, input); !slices.Equal(got, want) {
			t.Fatalf("got %q, want %q", got, want)
		}
		if !slices.Equal(input, kept) {
			t.Fatal("the input was changed")
		}
	})
}

func TestEveryRelayOfASmallFleetHoldsOneSlot(t *testing.T) {
	for n := range 12 {
		got := affinity.Slots("billing", 10, relayIDs(n))
		if len(got) != min(n, 10) {
			t.Errorf("%d relays hold %d slots", n, len(got))
		}
		slices.Sort(got)
		if len(slices.Compact(got)) != min(n, 10) {
			t.Errorf("%d relays: one holds two slots: %q", n, got)
		}
	}
	for _, k := range []int{0, -1} {
		if got := affinity.Slots("billing", k, relayIDs(3)); len(got) != 0 {
			t.Errorf("%d slots gave %q", k, got)
		}
	}
	if got := affinity.Slots("billing", 10, []string{"a", "b", "a"}); len(got) != 2 {
		t.Errorf("a relay that is named twice holds %q", got)
	}
}

func TestARelayWithoutASlotLeavesUnnoticed(t *testing.T) {
	relays := relayIDs(40)
	before := affinity.Slots("billing", 10, relays)
	for i, relay := range relays {
		after := affinity.Slots("billing", 10, slices.Delete(slices.Clone(relays), i, i+1))
		if !slices.Contains(before, relay) && !slices.Equal(before, after) {
			t.Errorf("%s held no slot, yet its leaving turned %q into %q", relay, before, after)
		}
	}
}

// A cascade of one is the lower bound: the freed slot itself.
func TestARelayThatLeavesFreesItsSlotWithLittleCascade(t *testing.T) {
	relays := relayIDs(200)
	before := affinity.Slots("billing", 50, relays)
	changed := 0
	for slot, relay := range before {
		after := affinity.Slots("billing", 50, slices.DeleteFunc(slices.Clone(relays), func(r string) bool { return r == relay }))
		if after[slot] == relay {
			t.Errorf("%s left and still holds slot %d", relay, slot)
		}
		for i := range after {
			if after[i] != before[i] {
				changed++
			}
		}
	}
	if mean := float64(changed) / 50; mean < 1 || mean > 1.5 {
		t.Errorf("a relay that leaves changes %.2f slots on average, want 1 to 1.5", mean)
	}
}

// Pinned, so that relays of two builds agree on who serves a service.
func TestSlotsArePinned(t *testing.T) {
	want := []string{"relay-4", "relay-7", "relay-2", "relay-6"}
	if got := affinity.Slots("billing", 4, relayIDs(8)); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The number of relays of a service follows from the members alone, so that all relays agree.
func TestAServiceHasAsManyRelaysAsItNeeds(t *testing.T) {
	for _, c := range []struct {
		relays, workers, k int
		whole              bool
		want               int
	}{
		{relays: 3, workers: 20, want: 3},    // all of a small fleet
		{relays: 50, workers: 12, want: 10},  // few workers need no more
		{relays: 300, workers: 64, want: 12}, // 16 workers for each relay
		{relays: 300, workers: 20_000, want: 288},
		{relays: 300, workers: 500, want: 88},
		{relays: 16, workers: 20_000, want: 16},
		{relays: 32, workers: 20_000, want: 30}, // some are left over
		{relays: 31, workers: 20_000, want: 30},
		{relays: 300, workers: 20_000, whole: true, want: 10},
		{relays: 300, workers: 20_000, k: 40, want: 40},
		{relays: 2, workers: 20, k: 40, want: 2},
	} {
		plan := mustPlan(t, affinity.PlanConfig{Service: "billing", Relays: someRelays(c.relays), Workers: someWorkers(c.workers), RelaysPerService: c.k, WholeRange: c.whole})
		if got := len(plan.Affine()); got != c.want {
			t.Errorf("%+v: %d relays serve the service, want %d", c, got, c.want)
		}
		if coverage := plan.Coverage(); c.whole && coverage.Connections != c.want*c.workers {
			t.Errorf("%+v: %d connections, want each relay connected to each worker", c, coverage.Connections)
		}
	}
}

// A fleet of a usual size keeps its ranges when one of its relays leaves for good.
func TestARelayThatLeavesChangesNoRangeButOne(t *testing.T) {
	for _, relays := range []int{20, 30, 32, 40, 50, 64, 96, 100, 128, 200, 256, 300} {
		cfg := affinity.PlanConfig{Service: "billing", Relays: someRelays(relays), Workers: someWorkers(20 * relays)}
		before := mustPlan(t, cfg)
		gone := before.Affine()[0]
		cfg.Relays = slices.DeleteFunc(cfg.Relays, func(r affinity.Relay) bool { return r.ID == gone })
		after := mustPlan(t, cfg)
		if len(after.Affine()) != len(before.Affine()) {
			t.Errorf("%d relays: %d serve the service, and %d after one has left", relays, len(before.Affine()), len(after.Affine()))
			continue
		}
		moved := 0
		for i, relay := range after.Affine() {
			if before.Affine()[i] != relay {
				moved++
			}
		}
		// The relay that takes the slot may leave its own to the next one.
		if moved > 6 {
			t.Errorf("%d relays: %d of %d ranges have another relay after one has left", relays, moved, len(after.Affine()))
		}
	}
}

// Whatever the size of the fleet, the number that is set and the minimums, a service has as many
// relays as each of its workers needs, or all that may serve it.
func TestAServiceNeverHasFewerRelaysThanItsWorkersNeed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := rapid.IntRange(3, 40).Draw(t, "m")
		cfg := affinity.PlanConfig{
			Service: "billing", Relays: someRelays(rapid.IntRange(1, 60).Draw(t, "relays")), Workers: someWorkers(rapid.IntRange(1, 300).Draw(t, "workers")),
			Minimums: affinity.Minimums{PeersPerWorker: m, PeersPerRelay: 1}, WholeRange: rapid.Bool().Draw(t, "whole range"),
			IndexSource: rapid.SampledFrom([]affinity.IndexSource{affinity.IndexRank, affinity.IndexSlot}).Draw(t, "index source"),
		}
		if rapid.Bool().Draw(t, "numbered") {
			cfg.RelaysPerService = rapid.IntRange(m, 70).Draw(t, "k")
		}
		plan, err := affinity.NewPlan(cfg)
		if err != nil {
			t.Fatal(err)
		}
		want := min(m, len(cfg.Relays))
		if got := len(plan.Affine()); got < want {
			t.Fatalf("%d relays serve the service, want at least %d", got, want)
		}
		if got := plan.Coverage().Min; got < want {
			t.Fatalf("a worker has %d relays, want at least %d", got, want)
		}
	})
}

// By rendezvous a relay that leaves moves only its own connections, so none has to be left over to
// replace it.
func TestByRendezvousAServiceThatNeedsAllRelaysHasAll(t *testing.T) {
	for _, c := range []struct{ relays, workers, want int }{
		{50, 1000, 50}, {49, 1000, 49}, {50, 266, 48}, {50, 267, 50}, {300, 200, 36}, {5, 10, 5}, {20, 10, 10},
	} {
		cfg := affinity.PlanConfig{Service: "billing", Relays: someRelays(c.relays), Workers: someWorkers(c.workers), Strategy: affinity.Rendezvous}
		if got := len(mustPlan(t, cfg).Affine()); got != c.want {
			t.Errorf("%d relays and %d workers: %d relays serve, want %d", c.relays, c.workers, got, c.want)
		}
		cfg.WholeRange = true
		if got := len(mustPlan(t, cfg).Affine()); got != min(c.relays, 10) {
			t.Errorf("%d relays, all connected to all %d workers: %d relays serve, want %d", c.relays, c.workers, got, min(c.relays, 10))
		}
	}
}
