package strategy

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ringway/ringway/ring"
)

// The first three rows are asserted by the source's own tests (TestGetNode_
// NodeGetNextIfBanned, _NodeReassignmentStability); the others were computed from
// its description by another program. A key's columns are the nodes picked among
// 100 200 300, then with 700 and 1200, then with 800, then the seven of its
// balance test.
var sha256Golden = map[string][4]string{
	"stable_key":             {"300", "700", "700", "400"},
	"stable_key_topic2":      {"100", "100", "100", "100"},
	"deadbeef":               {"200", "200", "300", "300"},
	"test":                   {"300", "1200", "800", "1200"},
	"0":                      {"300", "300", "700", "400"},
	"1":                      {"300", "700", "700", "400"},
	"2":                      {"100", "100", "1200", "8000"},
	"é":                      {"200", "300", "300", "400"},
	strings.Repeat("a", 200): {"100", "1200", "1200", "8000"},
}

func TestStableSHA256GivesTheSourcesGoldenTable(t *testing.T) {
	for i, nodes := range [][]string{
		{"300", "100", "200"}, {"1200", "100", "200", "300", "700"},
		{"100", "200", "300", "700", "800", "1200"}, {"8000", "1200", "100", "200", "300", "400", "500"},
	} {
		s := over(t, StableSHA256, nodes...)
		for key, want := range sha256Golden {
			if got := pick(t, s, Request{Key: key}); got != want[i] {
				t.Errorf("%.20q among %v goes to %s, want %s", key, nodes, got, want[i])
			}
		}
	}
}

// sourcesSHA256 is the source's algorithm, line by line.
func sourcesSHA256(key string, nodes []string, excluded func(string) bool) string {
	digest := sha256.Sum256([]byte(key))
	hash, n := binary.BigEndian.Uint32(digest[:4]), uint32(len(nodes))
	spacing := ^uint32(0) / n
	at := sort.Search(len(nodes), func(i int) bool { return hash < uint32(i)*spacing })
	for i := range nodes {
		if node := nodes[(at+i)%len(nodes)]; !excluded(node) {
			return node
		}
	}
	return ""
}

func TestStableSHA256IsTheSourcesAlgorithm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		numbers := rapid.SliceOfNDistinct(rapid.IntRange(1, 20_000), 1, 60, rapid.ID[int]).Draw(t, "nodes")
		nodes, gone := make([]string, len(numbers)), rapid.IntRange(0, len(numbers)-1).Draw(t, "excluded")
		for i, n := range numbers {
			nodes[i] = fmt.Sprint(n)
		}
		s, err := New(Config{Spec: Default(StableSHA256)})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Update(endpoints(nodes...)); err != nil {
			t.Fatal(err)
		}
		r := without(nodes[:gone]...)
		excluded := slices.Clone(nodes[:gone])
		slices.Sort(numbers)
		for i, n := range numbers {
			nodes[i] = fmt.Sprint(n)
		}
		r.Key = rapid.StringN(1, 20, -1).Draw(t, "key")
		want := sourcesSHA256(r.Key, nodes, func(node string) bool { return slices.Contains(excluded, node) })
		if e, err := s.Pick(r); err != nil || e.Node != want {
			t.Fatalf("%q goes to %v, %v; want %s", r.Key, e, err, want)
		}
	})
}

func TestNumberedNodesAreRankedByTheirNumbersAndBeforeTheOthers(t *testing.T) {
	names := []string{"w10", "9", "1200", "09", "w9", "", "200"}
	slices.SortFunc(names, compareNumbered)
	if want := []string{"09", "9", "200", "1200", "", "w10", "w9"}; !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
}

// stable must be one with ring.Rendezvous, so that every part of the relay that
// ranks nodes for a key ranks them alike.
func TestStableIsRendezvousHashing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,2}-[0-9]{1,3}`), 1, 40, rapid.ID[string]).Draw(t, "nodes")
		list := endpoints(nodes...)
		reference := make([]ring.Node, len(nodes))
		equal := rapid.Bool().Draw(t, "equal weights")
		for i := range list {
			if !equal {
				list[i].Weight = float64(rapid.IntRange(1, 100).Draw(t, "weight"))
			}
			reference[i] = ring.Node{ID: nodes[i], Weight: list[i].Weight}
		}
		rendezvous, err := ring.NewRendezvous(reference)
		if err != nil {
			t.Fatal(err)
		}
		s, err := New(Config{Spec: Default(Stable)})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Update(list); err != nil {
			t.Fatal(err)
		}
		r := Request{Key: rapid.StringN(1, 10, -1).Draw(t, "key"), Excluded: [][]string{nil}}
		for i, want := range rendezvous.Top(r.Key, len(nodes)) {
			e, err := s.Pick(r)
			if err != nil || e.Node != want {
				t.Fatalf("with %d excluded: %v, %v; want %s", i, e, err, want)
			}
			r.Excluded[0] = append(r.Excluded[0], e.ID)
		}
	})
}

func TestStableAnswersArePinned(t *testing.T) {
	s := over(t, Stable, "w1", "w2", "w3", "w4", "w5")
	var got []string
	for _, key := range []string{"ann", "bob", "cleo", "dan", "eve"} {
		got = append(got, pick(t, s, Request{Key: key}))
	}
	if want := []string{"w3", "w2", "w3", "w4", "w4"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// moved returns the share of 10,000 keys that move when a node joins n others, and how many of
// them do not move to the new node.
func moved(t *testing.T, name string, n int) (share float64, misplaced int) {
	t.Helper()
	const keys = 10_000
	nodes := make([]string, n+1)
	for i := range nodes {
		nodes[i] = fmt.Sprint(i + 1)
	}
	before, after := over(t, name, nodes[:n]...), over(t, name, nodes...)
	for i := range keys {
		r := Request{Key: fmt.Sprint(i)}
		if was, now := pick(t, before, r), pick(t, after, r); was != now {
			share += 1.0 / keys
			if now != nodes[n] {
				misplaced++
			}
		}
	}
	return share, misplaced
}

func TestANodeMoreMovesItsShareOfTheKeysWithStableAndHalfOfThemWithSHA256(t *testing.T) {
	for _, n := range []int{5, 20} {
		share, misplaced := moved(t, Stable, n)
		if fair := 1 / float64(n+1); misplaced > 0 || math.Abs(share-fair) > 0.1*fair {
			t.Errorf("stable, %d nodes: %.4f of the keys moved, want %.4f; %d of them not to the new node", n, share, fair, misplaced)
		}
	}
	for n, want := range map[int]float64{5: 0.367, 50: 0.47} {
		if share, misplaced := moved(t, StableSHA256, n); math.Abs(share-want) > 0.02 || misplaced == 0 {
			t.Errorf("stable-sha256, %d nodes: %.4f of the keys moved, want about %v", n, share, want)
		}
	}
}

func TestWeightsAreSharesOfTheKeys(t *testing.T) {
	s := build(t, Stable)
	list := endpoints("a", "b", "c", "d")
	for i := range list {
		list[i].Weight = float64(i)
	}
	update(t, s, list)
	const keys = 60_000
	count := map[string]int{}
	for i := range keys {
		count[pick(t, s, Request{Key: fmt.Sprint(i)})]++
	}
	for i, node := range []string{"a", "b", "c", "d"} {
		if got, want := float64(count[node])/keys, float64(i)/6; math.Abs(got-want) > 0.01 {
			t.Errorf("%s of weight %d has %.3f of the keys, want %.3f", node, i, got, want)
		}
	}
	if got := pick(t, s, without("b", "c", "d")); got != "a" {
		t.Errorf("picked %q; weight 0 is for when nothing else is left", got)
	}
	list[3].Weight = 0
	update(t, s, list)
	for i := range 1000 {
		if got := pick(t, s, Request{Key: fmt.Sprint(i)}); got == "d" {
			t.Fatal("a weight that became 0 still gets keys")
		}
	}
}

func TestARestartMovesNoKey(t *testing.T) {
	for _, name := range []string{Stable, StableSHA256} {
		s, list := build(t, name), endpoints("w1", "w2", "w3", "w4", "w5")
		update(t, s, list)
		before := map[string]string{}
		for i := range 200 {
			key := fmt.Sprint(i)
			before[key] = pick(t, s, Request{Key: key})
		}
		for i := range list {
			list[i].ID, list[i].Address = list[i].Node+".2", "elsewhere:80"
		}
		update(t, s, list)
		for key, was := range before {
			if e, err := s.Pick(Request{Key: key}); err != nil || e.Node != was || e.ID != was+".2" {
				t.Fatalf("%s: %q was at %s, is at %v, %v", name, key, was, e, err)
			}
		}
	}
}

func TestRequestsWithoutAKeyAreSpread(t *testing.T) {
	for name, want := range map[string][2]float64{Stable: {0.25, 0.75}, StableSHA256: {0.5, 0.5}} {
		w := watch(t)
		s := build(t, name, seeded(1), w.use)
		list := endpoints("a", "b")
		list[1].Weight = 3
		update(t, s, list)
		count := map[string]float64{}
		const n = 10_000
		for range n {
			count[pick(t, s, Request{})] += 1.0 / n
		}
		if math.Abs(count["a"]-want[0]) > 0.02 || math.Abs(count["b"]-want[1]) > 0.02 {
			t.Errorf("%s: shares %v, want %v", name, count, want)
		}
		s.Explain(Request{})
		pick(t, s, Request{Key: "k"})
		if got := w.value(t, "ringway_selection_keyless_total", name); got != n {
			t.Errorf("%s: counted %v requests without a key", name, got)
		}
	}
}
