package strategy

import (
	cryptorand "crypto/rand"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// What the 35 tests of XIP-79's reference implementation became.
//
//	GetNode_StableAssignment            TestOneKeyGoesToOneNode
//	GetNode_EmptyNodes                  TestAnEmptyRangeIsReported
//	GetNode_NoAvailableNodesError       TestAnUpdateThatIsRefusedIsReportedAndKeepsTheOldRange (an error of
//	                                    the source of nodes now ends there, not in a pick)
//	GetNode_CorrectAssignment           TestStableSHA256GivesTheSourcesGoldenTable, TestKeysAreSpread (it compared
//	                                    two chosen keys)
//	GetNode_NodeReassignment            TestANodeThatLeavesMovesItsOwnKeysOnly (it compared one key)
//	GetNode_NodeReassignmentStability   TestANodeMoreMovesItsShareOfTheKeys… (one key, chosen so that it stays)
//	GetNode_FindTopics (skipped)        TestEveryNodeHasAKey
//	GetNode_ConfirmTopicBalance         TestKeysAreSpread (a node without any key passed there)
//	GetNode_NodeGetNextIfBanned         TestExcludedOneByOneEveryNodeHasItsTurn, and the golden table
//	ManualNodeSelector_SingleNode       TestManualTakesTheFirstOfItsNodesAndNoOther
//	…_MultipleNodes                     the same
//	…_WithBanlist                       the same
//	…_NoNodesConfigured                 TestASpecBuiltInCodeIsCheckedLikeOneThatIsRead
//	…_NodeNotInRegistry                 TestManualTakesTheFirstOfItsNodesAndNoOther
//	OrderedPreference…_FirstPreferred   TestOrderedTakesThePreferredThenTheOthersSorted
//	…_FallbackToSecond                  the same
//	…_WithBanlist                       the same
//	…_FallbackToAny                     the same (any node passed there; now the order is fixed)
//	RandomNodeSelector_ReturnsValidNode TestRandomGivesEveryNodeTheSameShare
//	…_Distribution                      the same
//	…_WithBanlist                       TestRandomNeverGivesAnExcludedNode
//	…_EmptyNodes                        TestAnEmptyRangeIsReported
//	ClosestNodeSelector_ReturnsNode     TestClosestMeasuresRealSockets (either outcome passed there)
//	NewNodeSelector_StableStrategy      TestOneKeyGoesToOneNode
//	…_ManualStrategy                    TestManualTakesTheFirstOfItsNodesAndNoOther
//	…_ManualStrategyNoNodes             TestAllMistakesAreReportedInOneErrorInAStableOrder
//	…_OrderedStrategy                   TestOrderedTakesThePreferredThenTheOthersSorted
//	…_OrderedStrategyNoNodes            TestAllMistakesAreReportedInOneErrorInAStableOrder
//	…_RandomStrategy                    TestRandomGivesEveryNodeTheSameShare
//	…_ClosestStrategy                   TestEveryStrategyButTheDefaultCanBeMade
//	…_DefaultStrategy                   TestEveryDefaultIsThatOfTheContract (ours is p2c)
//	…_UnknownStrategy                   TestAllMistakesAreReportedInOneErrorInAStableOrder
//	ClosestNodeSelector_WithPreferred…  TestOnlyThePreferredAreMeasuredWhileThereAreAny (either outcome)
//	…_WithoutPreferredNodes             TestTheNearestIsClosestAndTheOtherEndFarthest (either outcome)
//	…_PreferredNodesFallback            TestOnlyThePreferredAreMeasuredWhileThereAreAny (either outcome)

var byKey = []string{Stable, StableSHA256}

func TestOneKeyGoesToOneNode(t *testing.T) {
	for _, name := range byKey {
		s, other := over(t, name, "100", "200", "300", "700", "1200"), over(t, name, "1200", "700", "100", "300", "200")
		for i := range 200 {
			r := Request{Key: fmt.Sprint("deadbeef", i)}
			if a, b, c := pick(t, s, r), pick(t, s, r), pick(t, other, r); a != b || b != c {
				t.Fatalf("%s: %q goes to %s, then to %s, and to %s where the range came in another order", name, r.Key, a, b, c)
			}
		}
	}
}

func TestAnEmptyRangeIsReported(t *testing.T) {
	for _, text := range []string{Stable, StableSHA256, "manual;preferred=a", "ordered;preferred=a", Random, Closest, Farthest, Slots} {
		s := build(t, text)
		wantError(t, s, Request{Key: "k"}, ErrNoEndpoints) // before the first update
		update(t, s, endpoints("a", "b"))
		update(t, s, nil)
		wantError(t, s, Request{Key: "k"}, ErrNoEndpoints)
		if d := s.Explain(Request{}); d.Winner != nil || d.Err == nil || !strings.Contains(d.Err.Error(), "no available endpoints") {
			t.Errorf("%s explains an empty range as %+v", text, d)
		}
	}
}

func TestAnUpdateThatIsRefusedIsReportedAndKeepsTheOldRange(t *testing.T) {
	s := over(t, Stable, "a")
	bad := endpoints("b", "b", "c")
	bad[2].ID, bad[2].Node, bad[2].Weight = "", "", -1
	err := s.Update(bad)
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{`ID "b.1" is given twice`, `Node "b" is given twice`, "endpoint 2 has no ID", "endpoint 2 has no Node", `"" has weight -1`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
	if got := pick(t, s, Request{Key: "k"}); got != "a" {
		t.Errorf("picked %q", got)
	}
}

func TestTheCallersEndpointsAreNotTheTables(t *testing.T) {
	s, list := build(t, "ordered;preferred=b"), endpoints("a", "b")
	update(t, s, list)
	list[1].Node, list[0] = "z", Endpoint{}
	if e, err := s.Pick(Request{}); err != nil || e.Node != "b" {
		t.Errorf("picked %v, %v", e, err)
	}
	if got := pick(t, s, without("b")); got != "a" {
		t.Errorf("picked %q", got)
	}
}

func TestANodeThatLeavesMovesItsOwnKeysOnly(t *testing.T) {
	before, after := over(t, Stable, "1", "2", "3", "4", "5", "6"), over(t, Stable, "1", "2", "3", "5", "6")
	gone := 0
	for i := range 3000 {
		r := Request{Key: fmt.Sprint(i)}
		switch was, now := pick(t, before, r), pick(t, after, r); {
		case was == "4":
			gone++
		case was != now:
			t.Fatalf("%q moved from %s to %s when 4 left", r.Key, was, now)
		}
	}
	if gone < 400 {
		t.Errorf("only %d keys were at the node that left", gone)
	}
}

func TestEveryNodeHasAKey(t *testing.T) {
	for _, name := range byKey {
		s, found := over(t, name, "100", "200", "300", "700", "1200"), map[string]string{}
		for i := 0; i < 1000 && len(found) < 5; i++ {
			key := fmt.Sprint(i)
			found[pick(t, s, Request{Key: key})] = key
		}
		if len(found) < 5 {
			t.Errorf("%s: of 1000 keys none is for some nodes: %v", name, found)
		}
	}
}

func TestKeysAreSpread(t *testing.T) {
	nodes := []string{"100", "200", "300", "400", "500", "1200", "8000"}
	for _, name := range byKey {
		s, count := over(t, name, nodes...), map[string]int{}
		for i := range 10_000 {
			count[pick(t, s, Request{Key: fmt.Sprint(i)})]++
		}
		for _, node := range nodes {
			if fair := 10_000 / len(nodes); count[node] < fair*9/10 || count[node] > fair*11/10 {
				t.Errorf("%s: node %s has %d of 10,000 keys, want %d ± 10 %%", name, node, count[node], fair)
			}
		}
	}
}

func TestExcludedOneByOneEveryNodeHasItsTurn(t *testing.T) {
	want := map[string][]string{StableSHA256: {"300", "100", "200"}}
	for _, text := range []string{Stable, StableSHA256, "manual;preferred=300,200,100", "ordered;preferred=300,200", Random, Slots, "slots;samples=1"} {
		s := over(t, text, "100", "200", "300")
		var tried []string
		r := Request{Key: "stable_key", Excluded: [][]string{nil, {"absent"}}}
		for range 3 {
			e, err := s.Pick(r)
			if err != nil {
				t.Fatalf("%s, after %v: %v", text, tried, err)
			}
			tried = append(tried, e.Node)
			r.Excluded[0] = append(r.Excluded[0], e.ID)
		}
		if w := want[text]; w != nil && !slices.Equal(tried, w) {
			t.Errorf("%s: tried %v, want %v", text, tried, w)
		}
		slices.Sort(tried)
		if !slices.Equal(tried, []string{"100", "200", "300"}) {
			t.Errorf("%s: tried %v", text, tried)
		}
		wantError(t, s, r, ErrAllExcluded)
		if _, err := s.Pick(Request{Key: "stable_key"}); err != nil {
			t.Errorf("%s: the next request is told %v: an exclusion is for one request", text, err)
		}
	}
}

func TestSeveralSetsOfExclusionsCountTogether(t *testing.T) {
	for _, text := range []string{Stable, StableSHA256, "manual;preferred=a,b,c", "ordered;preferred=a,b", Random, Slots} {
		s := over(t, text, "a", "b", "c")
		for i := range 20 {
			if got := pick(t, s, Request{Key: fmt.Sprint(i), Excluded: [][]string{{"a.1"}, nil, {"x", "b.1"}}}); got != "c" {
				t.Fatalf("%s: picked %q", text, got)
			}
		}
		wantError(t, s, Request{Key: "k", Excluded: [][]string{{"a.1"}, {"b.1"}, {"c.1"}}}, ErrAllExcluded)
	}
}

func TestManualTakesTheFirstOfItsNodesAndNoOther(t *testing.T) {
	for _, c := range []struct {
		preferred string
		r         Request
		want      string
	}{
		{"200", Request{}, "200"},
		{"200,300,100", Request{}, "200"},
		{"200,300,100", without("200"), "300"},
		{"400,300", Request{}, "300"},
	} {
		s := over(t, "manual;preferred="+c.preferred, "100", "200", "300")
		if got := pick(t, s, c.r); got != c.want {
			t.Errorf("manual with %s, excluding %v: %s, want %s", c.preferred, c.r.Excluded, got, c.want)
		}
	}
	wantError(t, over(t, "manual;preferred=200,300", "100", "200", "300"), without("200", "300"), ErrAllExcluded)
	missing := over(t, "manual;preferred=200,300", "100")
	wantError(t, missing, Request{}, ErrNoEndpoints)
	if _, err := missing.Pick(Request{}); !strings.Contains(err.Error(), "none of the nodes that strategy manual may use (200, 300)") {
		t.Errorf("the error does not name the nodes: %v", err)
	}
}

func TestOrderedTakesThePreferredThenTheOthersSorted(t *testing.T) {
	for _, c := range []struct {
		preferred string
		r         Request
		want      string
	}{
		{"300,200,100", Request{}, "300"},
		{"400,300,200", Request{}, "300"},
		{"300,200,100", without("300", "200"), "100"},
		{"400,500", Request{}, "100"},
		{"300", without("300"), "100"},
		{"300", without("300", "100"), "200"},
	} {
		for range 10 {
			s := over(t, "ordered;preferred="+c.preferred, "200", "300", "100")
			if got := pick(t, s, c.r); got != c.want {
				t.Fatalf("ordered with %s, excluding %v: %s, want %s", c.preferred, c.r.Excluded, got, c.want)
			}
		}
	}
	wantError(t, over(t, "ordered;preferred=200", "100", "200"), without("100", "200"), ErrAllExcluded)
}

func TestPreferredNodesThatTheRangeLacksAreNamed(t *testing.T) {
	for _, name := range []string{Manual, Ordered, Closest, Farthest} {
		s := build(t, name+";preferred=c,b,a")
		if got := s.UnknownPreferred(); !slices.Equal(got, []string{"c", "b", "a"}) {
			t.Errorf("%s, before anything is known: %v", name, got)
		}
		update(t, s, endpoints("x", "b"))
		if got := s.UnknownPreferred(); !slices.Equal(got, []string{"c", "a"}) {
			t.Errorf("%s: %v", name, got)
		}
		update(t, s, endpoints("a", "b", "c"))
		if got := s.UnknownPreferred(); len(got) != 0 {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestRandomGivesEveryNodeTheSameShare(t *testing.T) {
	s, count := over(t, Random, "100", "200", "300"), map[string]int{}
	const n = 3000
	for range n {
		count[pick(t, s, Request{Key: "always the same"})]++
	}
	chi := 0.0
	for _, node := range []string{"100", "200", "300"} {
		if count[node] <= 600 {
			t.Errorf("%s was picked %d times of %d", node, count[node], n)
		}
		off := float64(count[node]) - n/3
		chi += off * off / (n / 3)
	}
	// Two degrees of freedom: P(chi-square > 2x) is e^-x, here one in 10^9.
	if chi > 41.4 || len(count) != 3 {
		t.Errorf("chi-square %.1f: %v", chi, count)
	}
}

// middle is a generator that an attacker would like.
type middle struct{}

func (middle) Read(b []byte) (int, error) {
	clear(b)
	b[len(b)-1] = 0x80
	return len(b), nil
}

func TestRandomDrawsFromTheSecureGenerator(t *testing.T) {
	s := over(t, Random, numbered("w", 1001)...)
	secure := cryptorand.Reader
	defer func() { cryptorand.Reader = secure }()
	cryptorand.Reader = middle{}
	all := s.picker.(*uniform).table.Load()
	for range 3 {
		if got := pick(t, s, Request{}); got != (*all)[500].Node {
			t.Errorf("picked %s", got)
		}
	}
}

func TestRandomNeverGivesAnExcludedNode(t *testing.T) {
	s, count := over(t, Random, "a", "b", "c", "d", "e"), map[string]int{}
	for range 3000 {
		count[pick(t, s, without("b", "e"))]++
	}
	if len(count) != 3 || min(count["a"], count["c"], count["d"]) < 600 {
		t.Errorf("%v, want a, c and d about 1000 times each", count)
	}
}
