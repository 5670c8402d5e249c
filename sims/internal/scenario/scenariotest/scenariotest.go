// Package scenariotest tests scenarios: that all promises hold, that each promise can fail,
// and that a run depends only on its settings and its seed.
//
//	func TestEachPromiseCanFail(t *testing.T) {
//		scenariotest.EachCanFail(t, New(), map[string]scenariotest.Break{
//			"every worker has at least m relays": {Scenario: newWith(floatRanges)},
//			"shares are even": {Set: []string{"vnodes=1", "samples=1"}},
//		})
//	}
package scenariotest

import (
	"context"
	"reflect"
	"testing"

	"github.com/ringway/ringway/sims/internal/scenario"
)

// Break is a way to break a promise: a scenario with a deliberate bug, settings that demand
// too much, or both.
type Break struct {
	// Scenario has the bug and the same promises; the zero value means the original
	// scenario.
	Scenario scenario.Scenario
	// Intact is Scenario without the bug and must keep the promise; the zero value means
	// the original scenario.
	Intact scenario.Scenario
	// Set lists assignments "key=value" for both Scenario and Intact, or for the original
	// scenario if Scenario is the zero value.
	Set []string
}

// Run runs a scenario with seed 1 and Quick.
func Run(t testing.TB, s scenario.Scenario, set ...string) *scenario.Result {
	t.Helper()
	r, err := scenario.Execute(context.Background(), s, scenario.Options{Seed: 1, Quick: true, Set: set})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Holds runs a scenario and fails the test for each promise that does not hold.
func Holds(t testing.TB, s scenario.Scenario, set ...string) *scenario.Result {
	t.Helper()
	r := Run(t, s, set...)
	for _, v := range r.Violations() {
		t.Errorf("%s %v does not hold: %v", s.Name, set, v)
	}
	return r
}

// EachCanFail applies the break of every promise of a scenario and expects that promise to
// fail. A promise without a break, and a break without a promise, fail the test.
func EachCanFail(t *testing.T, s scenario.Scenario, breaks map[string]Break) {
	t.Helper()
	declared := map[string]bool{}
	for _, p := range s.Promises {
		declared[p.Name] = true
		b, ok := breaks[p.Name]
		if !ok {
			t.Errorf("no test breaks the promise %q", p.Name)
			continue
		}
		t.Run(p.Name, func(t *testing.T) {
			broken, intact := b.Scenario, b.Intact
			if intact.Run == nil {
				intact = s
			}
			if broken.Run == nil {
				broken = s
			} else if v := verdict(t, intact, p.Name, b.Set); !v.Holds() {
				t.Errorf("it does not even hold with nothing broken: %v", v)
			}
			v := verdict(t, broken, p.Name, b.Set)
			t.Log(v)
			if v.Holds() {
				t.Errorf("it holds although something was broken: %v", v)
			}
		})
	}
	for name := range breaks {
		if !declared[name] {
			t.Errorf("%q is no promise of %s", name, s.Name)
		}
	}
}

// verdict runs a scenario and returns the verdict of one promise.
func verdict(t testing.TB, s scenario.Scenario, promise string, set []string) scenario.Verdict {
	t.Helper()
	for _, v := range Run(t, s, set...).Verdicts {
		if v.Name == promise {
			return v
		}
	}
	t.Fatalf("%s has no promise %q", s.Name, promise)
	return scenario.Verdict{}
}

// Repeats runs a scenario twice with one seed and fails the test if the results differ.
func Repeats(t testing.TB, s scenario.Scenario, set ...string) {
	t.Helper()
	if a, b := Run(t, s, set...), Run(t, s, set...); !reflect.DeepEqual(a, b) {
		t.Errorf("two runs of %s with one seed differ", s.Name)
	}
}
