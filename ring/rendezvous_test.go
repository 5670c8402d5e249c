package ring_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/ringway/ringway/ring"
	"pgregory.net/rapid"
)

func mustRendezvous(t testing.TB, nodes ...ring.Node) *ring.Rendezvous {
	t.Helper()
	r, err := ring.NewRendezvous(nodes)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// names draws a set of distinct names in no particular order.
func names(low, high int) *rapid.Generator[[]string] {
	return rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,3}-[0-9]{1,3}`), low, high, rapid.ID[string])
}

// nodes draws nodes whose weights are all equal or all over the place.
func nodes(low, high int) *rapid.Generator[[]ring.Node] {
	return rapid.Custom(func(t *rapid.T) []ring.Node {
		equal := rapid.Bool().Draw(t, "equal weights")
		var out []ring.Node
		for _, id := range names(low, high).Draw(t, "ids") {
			weight := 1.0
			if !equal {
				weight = rapid.Float64Range(0.01, 100).Draw(t, "weight")
			}
			out = append(out, ring.Node{ID: id, Weight: weight})
		}
		return out
	})
}

// slowTop is the dumb reference: the score of every node as the paper writes it,
// sorted. Ties do not occur among the generated ids.
func slowTop(nodes []ring.Node, key string) []string {
	score := func(n ring.Node) float64 {
		h := float64(ring.Hash(n.ID, ring.Hash(key, 0))>>11) / (1 << 53)
		return -n.Weight / math.Log(h)
	}
	sorted := slices.Clone(nodes)
	slices.SortFunc(sorted, func(a, b ring.Node) int {
		if score(a) > score(b) {
			return -1
		}
		return 1
	})
	var out []string
	for _, n := range sorted {
		out = append(out, n.ID)
	}
	return out
}

func TestTopRanksByTheWeightedScore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := nodes(1, 60).Draw(t, "nodes")
		r, err := ring.NewRendezvous(nodes)
		if err != nil {
			t.Fatal(err)
		}
		key := rapid.StringMatching(`[a-z]{0,12}`).Draw(t, "key")
		want := slowTop(nodes, key)
		for _, n := range []int{1, 2, 8, 31, 32, 33, len(nodes), len(nodes) + 1} {
			if got := r.Top(key, n); !slices.Equal(got, want[:min(n, len(want))]) {
				t.Fatalf("Top(%q, %d) = %q, want the first of %q", key, n, got, want)
			}
		}
	})
}

// Pinned, so that a change of the score is a decision and not an accident (HS-E1).
func TestRankingIsPinned(t *testing.T) {
	r := mustRendezvous(t, ring.Node{ID: "relay-1", Weight: 1}, ring.Node{ID: "relay-2", Weight: 0.5},
		ring.Node{ID: "relay-3", Weight: 2}, ring.Node{ID: "relay-4", Weight: 1})
	for key, want := range map[string][]string{
		"alpha": {"relay-4", "relay-3", "relay-2", "relay-1"},
		"beta":  {"relay-2", "relay-1", "relay-4", "relay-3"},
		"delta": {"relay-4"},
	} {
		if got := r.Top(key, len(want)); !slices.Equal(got, want) {
			t.Errorf("Top(%q) = %q, want %q", key, got, want)
		}
	}
}

func TestTheOrderOfNodesDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := nodes(1, 40).Draw(t, "nodes")
		a, err := ring.NewRendezvous(nodes)
		if err != nil {
			t.Fatal(err)
		}
		b, err := ring.NewRendezvous(rapid.Permutation(nodes).Draw(t, "permuted"))
		if err != nil {
			t.Fatal(err)
		}
		for k := range 10 {
			key := fmt.Sprint("key-", k)
			if x, y := a.Top(key, len(nodes)), b.Top(key, len(nodes)); !slices.Equal(x, y) {
				t.Fatalf("Top(%q) = %q for one order of the nodes and %q for another", key, x, y)
			}
		}
	})
}

// A node that leaves takes only its own place with it: the rest keep their order (HS-E3).
func TestRemovingANodeMovesOnlyItsKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := nodes(2, 40).Draw(t, "nodes")
		gone := rapid.IntRange(0, len(nodes)-1).Draw(t, "gone")
		before, err := ring.NewRendezvous(nodes)
		if err != nil {
			t.Fatal(err)
		}
		after, err := ring.NewRendezvous(slices.Delete(slices.Clone(nodes), gone, gone+1))
		if err != nil {
			t.Fatal(err)
		}
		for k := range 20 {
			key := fmt.Sprint("key-", k)
			was, now := before.Top(key, len(nodes)), after.Top(key, len(nodes))
			was = slices.DeleteFunc(was, func(id string) bool { return id == nodes[gone].ID })
			if !slices.Equal(was, now) {
				t.Fatalf("key %q: the others were ranked %q, and %q after %q left", key, was, now, nodes[gone].ID)
			}
		}
	})
}

func TestANodesShareOfTheKeysIsItsShareOfTheWeight(t *testing.T) {
	const keys = 60_000
	for _, weights := range [][]float64{{2, 1}, {0.5, 1}, {1, 1, 1, 1}, {5, 3, 2}} {
		var nodes []ring.Node
		total := 0.0
		for i, w := range weights {
			nodes = append(nodes, ring.Node{ID: fmt.Sprint("relay-", i), Weight: w})
			total += w
		}
		r := mustRendezvous(t, nodes...)
		got := map[string]float64{}
		for k := range keys {
			got[r.Top(fmt.Sprint("key-", k), 1)[0]]++
		}
		for _, n := range nodes {
			want := n.Weight / total
			// Five standard deviations of a binomial share.
			if margin := 5 * math.Sqrt(want*(1-want)/keys); math.Abs(got[n.ID]/keys-want) > margin {
				t.Errorf("weights %v: %q owns %.4f of the keys, want %.4f ± %.4f", weights, n.ID, got[n.ID]/keys, want, margin)
			}
		}
	}
}

func TestAddingANodeMovesItsShareOfTheKeys(t *testing.T) {
	const old, keys = 9, 30_000
	var nodes []ring.Node
	for i := range old {
		nodes = append(nodes, ring.Node{ID: fmt.Sprint("relay-", i), Weight: 1})
	}
	before := mustRendezvous(t, nodes...)
	after := mustRendezvous(t, append(nodes, ring.Node{ID: "relay-new", Weight: 1})...)
	moved := 0.0
	for k := range keys {
		key := fmt.Sprint("key-", k)
		was, now := before.Top(key, 1)[0], after.Top(key, 1)[0]
		if was != now {
			moved++
			if now != "relay-new" {
				t.Fatalf("%q moved from %q to %q", key, was, now)
			}
		}
	}
	if want, margin := 1.0/(old+1), 0.01; math.Abs(moved/keys-want) > margin {
		t.Errorf("%.4f of the keys moved, want %.4f ± %.2f", moved/keys, want, margin)
	}
}

func TestNoNodesAnswerNothing(t *testing.T) {
	r := mustRendezvous(t)
	if got := r.Top("key", 3); len(got) != 0 {
		t.Errorf("Top among no nodes = %q", got)
	}
	if got := mustRendezvous(t, ring.Node{ID: "a", Weight: 1}).Top("key", -1); len(got) != 0 {
		t.Errorf("Top of -1 nodes = %q", got)
	}
}

func TestBadNodesAreRefused(t *testing.T) {
	for _, weight := range []float64{0, -1, math.NaN(), math.Inf(1), math.Inf(-1)} {
		if _, err := ring.NewRendezvous([]ring.Node{{ID: "a", Weight: weight}}); err == nil {
			t.Errorf("weight %v was accepted", weight)
		}
	}
	if _, err := ring.NewRendezvous([]ring.Node{{ID: "", Weight: 1}}); err == nil || !strings.Contains(err.Error(), "name of a member is empty") {
		t.Errorf("an empty id gave %v", err)
	}
	if _, err := ring.NewRendezvous([]ring.Node{{ID: "a", Weight: 1}, {ID: "b", Weight: 1}, {ID: "a", Weight: 2}}); err == nil || !strings.Contains(err.Error(), `named twice: "a"`) {
		t.Errorf("a repeated id gave %v", err)
	}
}
