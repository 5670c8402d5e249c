package strategy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ringway/ringway/ring"
)

// bounded is the bound of stable, the slow way: the first of the key's whole order
// that has less in flight than its bound. The numbers are whole: a bound of 125 is
// 1.25.
func bounded(t *rapid.T, list []Endpoint, r Request, percent int) (node string, passedOn bool) {
	inFlight, weights := 0, 0
	var usable []ring.Node
	for _, e := range list {
		inFlight += int(gaugeOf(e).load.Load())
		if !r.excludes(&e) {
			weights += int(e.Weight)
			usable = append(usable, ring.Node{ID: e.Node, Weight: e.Weight})
		}
	}
	if len(usable) == 0 {
		return "", false
	}
	order, err := ring.NewRendezvous(usable)
	if err != nil {
		t.Fatal(err)
	}
	for i, node := range order.Top(r.Key, len(usable)) {
		e := list[slices.IndexFunc(list, func(e Endpoint) bool { return e.Node == node })]
		limit := (percent*(inFlight+1)*int(e.Weight) + 100*weights - 1) / (100 * weights)
		if int(gaugeOf(e).load.Load()) < max(limit, 2) {
			return node, i > 0
		}
	}
	t.Fatal("every endpoint has its bound in flight: the bounds add up to more than that")
	return "", false
}

func TestStableGivesAKeyToTheFirstOfItsOrderThatIsBelowItsBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := endpoints(numbered("w", rapid.IntRange(1, 20).Draw(t, "endpoints"))...)
		most := rapid.SampledFrom([]int64{1, 3, 10, 100}).Draw(t, "most")
		var excluded []string
		for i := range list {
			list[i].Weight = float64(rapid.IntRange(1, 20).Draw(t, "weight"))
			gaugeOf(list[i]).load.Store(rapid.Int64Range(0, most).Draw(t, "load"))
			if rapid.IntRange(0, 9).Draw(t, "excluded") == 0 {
				excluded = append(excluded, list[i].ID)
			}
		}
		percent := rapid.SampledFrom([]int{101, 110, 125, 150, 200, 1000}).Draw(t, "bound")
		spec := Default(Stable)
		spec.Bound = float64(percent) / 100
		s, err := New(Config{Spec: spec})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Update(list); err != nil {
			t.Fatal(err)
		}
		r := Request{Key: rapid.StringN(1, 6, -1).Draw(t, "key"), Excluded: [][]string{excluded}}
		want, passedOn := bounded(t, list, r, percent)
		e, err := s.Pick(r)
		d := s.Explain(r)
		if want == "" {
			if err == nil || d.Err == nil {
				t.Fatalf("picked %v, all are excluded", e)
			}
			return
		}
		if err != nil || e.Node != want || d.Winner == nil || d.Winner.Node != want {
			t.Fatalf("picked %v, %v, explained %v; want %s", e, err, d.Winner, want)
		}
		if strings.Contains(d.Rule, "passed on") != passedOn {
			t.Fatalf("passed on is %v, the rule says %q", passedOn, d.Rule)
		}
	})
}

// TestHotKeysStayWithinTheBound fills the endpoints with requests of few keys, one at
// a time, as long requests would.
func TestHotKeysLeaveNoEndpointMoreThanOneAboveItsBound(t *testing.T) {
	for _, c := range []struct {
		text  string
		bound float64
	}{{"stable", 1.25}, {"stable;bound=2", 2}} {
		for _, keys := range []int{1, 2, 5} {
			s, list := build(t, c.text), endpoints(numbered("w", 10)...)
			weights := 0.0
			for i := range list {
				list[i].Weight = float64(1 + i%3)
				weights += list[i].Weight
			}
			update(t, s, list)
			for n := 1; n <= 1000; n++ {
				e, err := s.Pick(Request{Key: fmt.Sprint("hot", n%keys)})
				if err != nil {
					t.Fatal(err)
				}
				g := e.Signals.(*gauge)
				g.load.Add(1)
				if load, most := float64(g.load.Load()), c.bound*float64(n)*e.Weight/weights+1; load > max(most, alwaysWithin) {
					t.Fatalf("%s, %d hot keys: %s of weight %v has %v of %d in flight, more than one above %.2f", c.text, keys, e.Node, e.Weight, load, n, most-1)
				}
			}
		}
	}
}

func TestAHotKeyHasNoBoundWhereItIsTurnedOff(t *testing.T) {
	for _, text := range []string{"stable;bound=0", StableSHA256} {
		s := over(t, text, numbered("w", 10)...)
		nodes := map[string]bool{}
		for range 100 {
			e, err := s.Pick(Request{Key: "hot"})
			if err != nil {
				t.Fatal(err)
			}
			e.Signals.(*gauge).load.Add(1)
			nodes[e.Node] = true
		}
		if len(nodes) != 1 {
			t.Errorf("%s: the key went to %d endpoints", text, len(nodes))
		}
	}
}

// TestNineInTenKeysStay counts keys that are in flight all concurrently, each as often as
// the others, at few and at many for each endpoint.
func TestAtLeastNineInTenKeysStayUnderAnEvenLoad(t *testing.T) {
	for _, c := range []struct{ endpoints, keys int }{{3, 1}, {10, 5}, {100, 40}, {10, 300}, {10, 1000}, {40, 4000}} {
		s := over(t, Stable, numbered("w", c.endpoints)...)
		free := over(t, "stable;bound=0", numbered("w", c.endpoints)...)
		stay := 0
		for i := range c.keys {
			r := Request{Key: fmt.Sprint("key", i)}
			e, err := s.Pick(r)
			if err != nil {
				t.Fatal(err)
			}
			e.Signals.(*gauge).load.Add(1)
			if e.Node == pick(t, free, r) {
				stay++
			}
		}
		if stay*10 < c.keys*9 {
			t.Errorf("%d of %d keys at %d endpoints stay", stay, c.keys, c.endpoints)
		} else {
			t.Logf("%d of %d keys at %d endpoints stay", stay, c.keys, c.endpoints)
		}
	}
}

// A client's next request may come before the last one is counted off.
func TestTheKeyOfAClientThatSendsOneAfterTheOtherNeverMoves(t *testing.T) {
	for n := 1; n <= 50; n++ {
		s := over(t, "stable;bound=1.01", numbered("w", n)...)
		first, err := s.Pick(Request{Key: "alice"})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			first.Signals.(*gauge).load.Store(1) // not yet counted off
			if got := pick(t, s, Request{Key: "alice"}); got != first.Node {
				t.Fatalf("of %d endpoints the key was at %s, is at %s", n, first.Node, got)
			}
		}
	}
}

func TestAKeyThatIsPassedOnIsExplainedAndCounted(t *testing.T) {
	w := watch(t)
	s := build(t, Stable, w.use)
	update(t, s, endpoints("w1", "w2", "w3"))
	var order []*Endpoint
	r := Request{Key: "alice"}
	for range 3 {
		e, err := s.Pick(r)
		if err != nil {
			t.Fatal(err)
		}
		order = append(order, e)
		r.Excluded = [][]string{{order[0].ID, order[len(order)-1].ID}}
	}
	order[0].Signals.(*gauge).load.Store(7)
	d := s.Explain(Request{Key: "alice"})
	if d.Winner != order[1] || d.Candidates[0].Node != order[0].Node || d.Candidates[0].Note != "passed over: 7 in flight, the bound is 4" || d.Candidates[1].Note != noteUsable {
		t.Errorf("%+v", d)
	}
	if want := order[0].Node + " has the highest score for the key but as many requests in flight as its bound allows, 4: passed on"; !strings.HasPrefix(d.Rule, want) {
		t.Errorf("the rule is %q", d.Rule)
	}
	if got := w.value(t, "ringway_selection_passed_on_total"); got != 0 {
		t.Errorf("an explanation counts, %v", got)
	}
	for range 5 {
		pick(t, s, Request{Key: "alice"})
	}
	if got := w.value(t, "ringway_selection_passed_on_total"); got != 5 {
		t.Errorf("counted %v picks that were passed on", got)
	}
}

func TestPassingAKeyOnAllocatesNothing(t *testing.T) {
	s, list := build(t, Stable), endpoints(numbered("w", 8)...)
	update(t, s, list)
	e, err := s.Pick(Request{Key: "alice"})
	if err != nil {
		t.Fatal(err)
	}
	e.Signals.(*gauge).load.Store(100)
	if n := testing.AllocsPerRun(200, func() { _, _ = s.Pick(Request{Key: "alice"}) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkPassOn(b *testing.B) {
	for _, n := range []int{8, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := over(b, Stable, numbered("w", n)...)
			e, err := s.Pick(Request{Key: "alice"})
			if err != nil {
				b.Fatal(err)
			}
			e.Signals.(*gauge).load.Store(100)
			b.ReportAllocs()
			for b.Loop() {
				_, _ = s.Pick(Request{Key: "alice"})
			}
		})
	}
}
