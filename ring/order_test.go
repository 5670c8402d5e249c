package ring_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/ringway/ringway/ring"
	"pgregory.net/rapid"
)

func TestOrderIsByKeyedHashAndLeavesItsInputAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOf(rapid.StringMatching(`[a-c]{0,3}`)).Draw(t, "ids") // repeats are likely
		key := rapid.StringMatching(`[a-z]{0,8}`).Draw(t, "key")
		input := slices.Clone(ids)
		got := ring.Order(key, input)
		if !slices.Equal(input, ids) {
			t.Fatalf("Order changed its input from %q to %q", ids, input)
		}
		if again := ring.Order(key, rapid.Permutation(ids).Draw(t, "permuted")); !slices.Equal(got, again) {
			t.Fatalf("%q in one order of the input, %q in another", got, again)
		}
		distinct := true
		for i := 1; i < len(got); i++ {
			a, b := ring.Hash(got[i-1], ring.Hash(key, 0)), ring.Hash(got[i], ring.Hash(key, 0))
			if a > b || (a == b && got[i-1] > got[i]) {
				t.Fatalf("%q comes before %q", got[i-1], got[i])
			}
			distinct = distinct && got[i-1] != got[i]
		}
		if ring.IsOrdered(key, got) != distinct {
			t.Fatalf("IsOrdered(%q) = %v, want %v", got, !distinct, distinct)
		}
		slices.Sort(got)
		slices.Sort(ids)
		if !slices.Equal(got, ids) {
			t.Fatalf("Order returned %q for %q", got, ids)
		}
	})
}

func TestAnyOtherOrderIsNotOrdered(t *testing.T) {
	ids := ring.Order("billing", []string{"a", "b", "c", "d"})
	for i := range ids {
		for j := range i {
			swapped := slices.Clone(ids)
			swapped[i], swapped[j] = swapped[j], swapped[i]
			if ring.IsOrdered("billing", swapped) {
				t.Errorf("%q passes for the order %q", swapped, ids)
			}
		}
	}
}

func TestKeysGiveUnrelatedOrders(t *testing.T) {
	var ids []string
	for i := range 1000 {
		ids = append(ids, fmt.Sprintf("10.0.%d.%d:8080", i/250, i%250))
	}
	a, b := ring.Order("billing", ids), ring.Order("search", ids)
	next := map[string]string{}
	for i, id := range a {
		next[id] = a[(i+1)%len(a)]
	}
	kept := 0
	for i, id := range b {
		if next[id] == b[(i+1)%len(b)] {
			kept++
		}
	}
	// About one pair of neighbours is expected to stay together by chance.
	if kept > 10 {
		t.Errorf("%d of %d neighbours under one key are neighbours under the other", kept, len(ids))
	}
}
