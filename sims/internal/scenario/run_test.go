package scenario_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/ringway/ringway/sims/internal/scenario"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// running returns a scenario with two promises around a body.
func running(body func(*scenario.Run) error) scenario.Scenario {
	return scenario.Scenario{
		Name: "test", Asks: "?", Run: body,
		Promises: []scenario.Promise{{Name: "low", Relation: scenario.AtMost, Bound: 10, Unit: "ms"}, {Name: "high", Relation: scenario.AtLeast, Bound: 2}},
	}
}

func execute(t *testing.T, s scenario.Scenario, o scenario.Options) *scenario.Result {
	t.Helper()
	r, err := scenario.Execute(context.Background(), s, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestTheWorstOfAllChecksCounts(t *testing.T) {
	r := execute(t, running(func(r *scenario.Run) error {
		for i, v := range []float64{3, 12, 11} {
			r.Check("low", v, fmt.Sprint("case ", i))
		}
		r.Check("high", 2, "edge")
		r.Require(scenario.Measurement{Promise: "high", Value: 5, Bound: 5, Where: "own bound"})
		return nil
	}), scenario.Options{})
	broken := r.Violations()
	if len(broken) != 1 || broken[0].String() != "low: 12 ms, promised ≤ 10 ms (case 1)" || broken[0].Checks != 3 {
		t.Errorf("%v", broken)
	}
}

func TestWhatIsNoNumberHoldsNothing(t *testing.T) {
	for _, relation := range []scenario.Relation{scenario.AtMost, scenario.AtLeast, scenario.Equals} {
		v := scenario.Verdict{Promise: scenario.Promise{Relation: relation}, Value: math.NaN(), Bound: 1}
		if v.Holds() {
			t.Errorf("NaN %s 1 holds", relation)
		}
	}
	for _, c := range []struct {
		relation scenario.Relation
		value    float64
		holds    bool
	}{
		{scenario.AtMost, 1, true}, {scenario.AtMost, 1.01, false}, {scenario.AtMost, math.Inf(1), false},
		{scenario.AtLeast, 1, true}, {scenario.AtLeast, 0.99, false}, {scenario.Equals, 1, true}, {scenario.Equals, 0.5, false},
	} {
		v := scenario.Verdict{Promise: scenario.Promise{Relation: c.relation}, Value: c.value, Bound: 1}
		if v.Holds() != c.holds {
			t.Errorf("%v %s 1: %v", c.value, c.relation, v.Holds())
		}
	}
}

func TestAnUncheckedPromiseIsAnError(t *testing.T) {
	check := func(r *scenario.Run) error { r.Check("low", 1, ""); return nil }
	if _, err := scenario.Execute(context.Background(), running(check), scenario.Options{}); err == nil || !strings.Contains(err.Error(), `"high" was neither`) {
		t.Errorf("%v", err)
	}
	skip := func(r *scenario.Run) error {
		r.Check("low", 1, "")
		r.Skip("low", "no")
		r.Skip("high", "nothing to see")
		return nil
	}
	r := execute(t, running(skip), scenario.Options{})
	if r.Verdicts[0].Skipped != "" || r.Verdicts[1].Skipped == "" || len(r.Violations()) > 0 {
		t.Errorf("%+v", r.Verdicts)
	}
}

func TestAPictureWithoutLabelsUnitsOrConclusionIsAnError(t *testing.T) {
	good := func() scenario.Plot {
		p := scenario.Plot{Name: "p", Title: "t", Conclusion: "c", X: scenario.Axis{Label: "x", Unit: "1"}, Y: scenario.Axis{Label: "y", Unit: "ms"}}
		p.Line("a").At(1, 1)
		return p
	}
	for says, spoil := range map[string]func(*scenario.Plot){
		"":            func(*scenario.Plot) {},
		"label":       func(p *scenario.Plot) { p.X.Label = "" },
		"unit":        func(p *scenario.Plot) { p.Y.Unit = "" },
		"conclusion":  func(p *scenario.Plot) { p.Conclusion = "" },
		"no series":   func(p *scenario.Plot) { p.Series = nil },
		"no point":    func(p *scenario.Plot) { p.Line("b").At(1, math.NaN()) },
		"logarithmic": func(p *scenario.Plot) { p.Y.Log = true; p.Line("b").At(1, 0) },
		"categories":  func(p *scenario.Plot) { p.Categories = []string{"one", "two"} },
		"instead of":  func(p *scenario.Plot) { p.Categories = []string{"one"}; p.Event(0, "e") },
		"a label and": func(p *scenario.Plot) { p.Event(1, "") },
		"axis \"y\"":  func(p *scenario.Plot) { p.Y.Log = true; p.Reference(0, "r") },
	} {
		p := good()
		spoil(&p)
		_, err := scenario.Execute(context.Background(), running(func(r *scenario.Run) error {
			r.Plot(p)
			r.Check("low", 1, "")
			r.Check("high", 3, "")
			return nil
		}), scenario.Options{})
		if says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("%v, want %q in it", err, says)
		}
	}
}

func TestATableWithARowTooShortOrACellOfAnotherTypeIsAnError(t *testing.T) {
	for _, row := range [][]any{{1}, {1, 2, 3}, {1, int64(2)}} {
		_, err := scenario.Execute(context.Background(), running(func(r *scenario.Run) error {
			table := r.Table(scenario.Table{Name: "t", Title: "t", Columns: []scenario.Column{{Name: "a"}, {Name: "b"}}})
			table.Add(row...)
			r.Check("low", 1, "")
			r.Check("high", 3, "")
			return nil
		}), scenario.Options{})
		if err == nil {
			t.Errorf("%v is accepted", row)
		}
	}
}

func TestStreamsOfChanceDependOnSeedAndNameOnly(t *testing.T) {
	draw := func(seed uint64, stream string) (n uint64) {
		execute(t, running(func(r *scenario.Run) error {
			n = r.Rand(stream).Uint64()
			r.Check("low", 1, "")
			r.Check("high", 3, "")
			return nil
		}), scenario.Options{Seed: seed})
		return n
	}
	a := draw(1, "a")
	if draw(1, "a") != a || draw(2, "a") == a || draw(1, "b") == a {
		t.Error("streams are not what seed and name say")
	}
}

func TestParallelKeepsPlacesStepsAndTheFirstErrorByNumber(t *testing.T) {
	var done []float64
	o := scenario.Options{Progress: func(share float64) { done = append(done, share) }}
	r := execute(t, running(func(r *scenario.Run) error {
		squares := make([]int, 100)
		err := r.Parallel(len(squares), func(i int) error {
			squares[i] = i * i
			return nil
		})
		for i, s := range squares {
			if s != i*i {
				t.Errorf("place %d holds %d", i, s)
			}
		}
		r.Check("low", 1, "")
		r.Check("high", 3, "")
		return err
	}), o)
	if len(done) != 100 || !slices.IsSorted(done) || done[99] != 1 || r == nil {
		t.Errorf("progress: %v", done)
	}
	_, err := scenario.Execute(context.Background(), running(func(r *scenario.Run) error {
		return r.Parallel(50, func(i int) error {
			if i%7 == 3 {
				return fmt.Errorf("number %d", i)
			}
			return nil
		})
	}), scenario.Options{})
	if err == nil || !strings.Contains(err.Error(), "number 3") || strings.Contains(err.Error(), "number 1") {
		t.Errorf("%v, want number 3", err)
	}
}

func TestACancelledRunEndsWithTheReason(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	_, err := scenario.Execute(ctx, running(func(r *scenario.Run) error {
		return r.Parallel(1000, func(i int) error {
			cancel()
			return nil
		})
	}), scenario.Options{})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestCompareMatchesRowsByKeyAndShowsTheChange(t *testing.T) {
	s := running(func(r *scenario.Run) error {
		table := r.Table(scenario.Table{Name: "t", Title: "t", Columns: []scenario.Column{
			{Name: "case", Key: true}, {Name: "factor", Key: true}, {Name: "value", Digits: 1},
		}})
		for _, name := range []string{"one", "two", "three"}[:1+r.Int("factor")] {
			table.Add(name, r.Int("factor"), 10*float64(r.Int("factor")))
		}
		p := r.Plot(scenario.Plot{Name: "p", Title: "t", Conclusion: fmt.Sprintf("It is %d.", r.Int("factor")), X: scenario.Axis{Label: "x", Unit: "1"}, Y: scenario.Axis{Label: "y", Unit: "ms"}})
		p.Line("l").At(1, float64(r.Int("factor")))
		p.Event(float64(r.Int("factor")), "e")
		p.Reference(1, "r")
		r.Check("low", 10*float64(r.Int("factor")), "")
		r.Check("high", 3, "")
		return nil
	})
	s.Settings = []scenario.Setting{{Name: "factor", Help: "h", Default: 1, Min: 0, Max: 2}}
	got := scenario.Compare(execute(t, s, scenario.Options{}), execute(t, s, scenario.Options{Set: []string{"factor=2"}}))
	table := got.Table("t")
	want := [][]any{{"one", 10.0, 20.0, 100.0}, {"two", 10.0, 20.0, 100.0}, {"three", nil, 20.0, nil}}
	if !reflect.DeepEqual(table.Rows, want) || len(table.Columns) != 4 || table.Columns[3].Head() != "value, change (%)" {
		t.Errorf("%v under %v", table.Rows, table.Columns)
	}
	if len(got.Plots[0].Series) != 2 || got.Plots[0].Series[1].Name != "B: l" || got.Plots[0].Conclusion != "A: It is 1. B: It is 2." {
		t.Errorf("%+v", got.Plots[0])
	}
	if events, same := got.Plots[0].Events, got.Plots[0].References; !slices.Equal(events, []scenario.Mark{{At: 1, Label: "A: e"}, {At: 2, Label: "B: e"}}) || len(same) != 1 || same[0].Label != "r" {
		t.Errorf("%+v, %+v", events, same)
	}
	if broken := got.Violations(); len(broken) != 1 || broken[0].Side != "B" || got.Settings[0].Value != "A: 1, B: 2" {
		t.Errorf("%+v, %+v", broken, got.Settings)
	}
}

func TestScenariosAreFoundByNameInTheirOrder(t *testing.T) {
	all := []scenario.Scenario{{Name: "a"}, {Name: "b"}, {Name: "c"}}
	for _, c := range []struct {
		names []string
		want  string
	}{{[]string{"c", "a"}, "ac"}, {[]string{"all"}, "abc"}, {[]string{"b", "b"}, "b"}} {
		found, err := scenario.Find(all, c.names)
		got := ""
		for _, s := range found {
			got += s.Name
		}
		if err != nil || got != c.want {
			t.Errorf("%v: %q, %v", c.names, got, err)
		}
	}
	if _, err := scenario.Find(all, []string{"d"}); err == nil || !strings.Contains(err.Error(), "a, b and c, or all") {
		t.Errorf("%v", err)
	}
}
