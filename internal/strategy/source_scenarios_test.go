package strategy

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// The nine tests of the source's factory and its four of closest, which its own
// could not distinguish: "the same node twice" for a range of one node, "a node of
// the range" for random, "not nil" for closest, and either outcome for what
// closest measures. Here each name must do what no other name does.
func TestEveryNameMakesItsStrategy(t *testing.T) {
	nodes := []string{"100", "200", "300", "700"}
	// picks are the nodes that 200 different keys go to.
	picks := func(t *testing.T, text string) []string {
		s := over(t, text, nodes...)
		got := make([]string, 200)
		for i := range got {
			got[i] = pick(t, s, Request{Key: fmt.Sprint("key ", i)})
		}
		return got
	}
	stable, sha, random := picks(t, Stable), picks(t, StableSHA256), picks(t, Random)
	for _, c := range []struct {
		source string
		holds  func() bool
	}{
		{"StableStrategy: the same keys at the same nodes, again", func() bool {
			return slices.Equal(stable, picks(t, Stable)) && slices.Equal(sha, picks(t, StableSHA256))
		}},
		{"StableStrategy: not by the key's place alone", func() bool { return !slices.Equal(stable, sha) }},
		{"RandomStrategy: other nodes the next time", func() bool { return !slices.Equal(random, picks(t, Random)) && !slices.Equal(random, stable) }},
		{"RandomStrategy: every node", func() bool { return len(slices.Compact(slices.Sorted(slices.Values(random)))) == len(nodes) }},
		{"ManualStrategy: the first of its nodes for every key", func() bool { return onlyOf(picks(t, "manual;preferred=200,100"), "200") }},
		{"OrderedStrategy: the first of its nodes for every key", func() bool { return onlyOf(picks(t, "ordered;preferred=300,200,100"), "300") }},
		{"OrderedStrategy: and the others after them, where manual has none", func() bool {
			e, err := over(t, "ordered;preferred=300", nodes...).Pick(without("300"))
			none, errManual := over(t, "manual;preferred=300", nodes...).Pick(without("300"))
			return err == nil && e.Node == "100" && none == nil && errManual != nil
		}},
		{"ManualStrategyNoNodes", func() bool { _, err := Parse("manual"); return err != nil }},
		{"OrderedStrategyNoNodes", func() bool { _, err := Parse("ordered"); return err != nil }},
		{"UnknownStrategy", func() bool { _, err := Parse("invalid"); return err != nil }},
		{"DefaultStrategy: not stable here, and said so", func() bool {
			spec, err := Parse("")
			return err == nil && spec.Name == P2C
		}},
	} {
		if !c.holds() {
			t.Errorf("%s: does not hold", c.source)
		}
	}
}

func onlyOf(picked []string, node string) bool {
	return len(slices.Compact(slices.Clone(picked))) == 1 && picked[0] == node
}

func TestClosestHasOneOutcomeWhereTheSourcesTestTookEither(t *testing.T) {
	for _, c := range []struct {
		source    string
		text      string
		nodes     []string // of which a, b and c answer after 30, 10 and 20 ms
		want      []string // picked one after the other, each then excluded
		last      error    // afterwards
		unreached error    // while nothing can be connected to
	}{
		{"ClosestNodeSelector_ReturnsNode", "closest", []string{"a"}, []string{"a"}, ErrAllExcluded, ErrNoMeasurement},
		{"NewNodeSelector_ClosestStrategy", "closest", []string{"a", "b", "c"}, []string{"b", "c", "a"}, ErrAllExcluded, ErrNoMeasurement},
		{"ClosestNodeSelector_WithPreferredNodes", "closest;preferred=a,c", []string{"a", "b", "c"}, []string{"c", "a"}, ErrAllExcluded, ErrNoMeasurement},
		{"ClosestNodeSelector_WithoutPreferredNodes", "closest;timeout=15ms", []string{"a", "b", "c"}, []string{"b"}, ErrNoMeasurement, ErrNoMeasurement},
		{"ClosestNodeSelector_PreferredNodesFallback", "closest;preferred=x,y", []string{"c"}, []string{"c"}, ErrAllExcluded, ErrNoMeasurement},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := build(t, c.text, abc().use)
			running(t, s)
			update(t, s, endpoints(c.nodes...))
			time.Sleep(time.Second)
			for i, node := range c.want {
				if got := pick(t, s, without(c.want[:i]...)); got != node {
					t.Errorf("%s: pick %d is %s, want %s", c.source, i, got, node)
				}
			}
			wantError(t, s, without(c.want...), c.last)

			n := abc()
			n.cut()
			s = build(t, c.text, n.use)
			running(t, s)
			update(t, s, endpoints(c.nodes...))
			time.Sleep(time.Second)
			wantError(t, s, Request{}, c.unreached)
		})
	}
}
