package latency

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/ringway/ringway/selection"
	"github.com/ringway/ringway/sims/internal/policy"
	"github.com/ringway/ringway/sims/internal/queueing"
)

// brokenOf names what does not hold.
func brokenOf(properties []Property) []string {
	var out []string
	for _, p := range properties {
		if !p.Holds() {
			out = append(out, p.String())
		}
	}
	return out
}

func mustRun(t *testing.T, g Grid) []Row {
	t.Helper()
	rows, err := g.Run(nil)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// The smallest topology; the full grid is go run ./sims/latency --check.
func TestOurSelectionHoldsWhatIsPromised(t *testing.T) {
	if raceDetector {
		t.Skip("runs without the race detector")
	}
	rows := mustRun(t, Grid{Cells(Small, 2), []queueing.Policy{
		policy.Omniscient, policy.PeakEWMA, policy.Ringway(Ours, selection.DefaultConfig()),
	}})
	properties := Judge(rows, Ours)
	if len(properties) != 6 {
		t.Errorf("%d properties were judged", len(properties))
	}
	for _, p := range properties {
		t.Log(p)
	}
	if broken := brokenOf(properties); broken != nil {
		t.Errorf("does not hold:\n%s", strings.Join(broken, "\n"))
	}
}

// Every property is broken by some policy, so none of them is empty.
func TestEachPropertyIsBrokenByWorsePolicies(t *testing.T) {
	if raceDetector {
		t.Skip("runs without the race detector")
	}
	plain, hasty := selection.DefaultConfig(), selection.DefaultConfig()
	plain.Redraws = 0
	hasty.ErrorRateThreshold = 1e-6
	policies := []queueing.Policy{
		policy.Omniscient, policy.PeakEWMA, policy.LeastRequest, policy.EWMA,
		policy.Ringway("no redraws", plain), policy.Ringway("hasty", hasty),
	}
	cells := slices.DeleteFunc(Cells(Small, 1), func(c Cell) bool { return c.Load < 0.6 })
	rows := mustRun(t, Grid{cells, policies})
	broken := make(map[string][]string)
	for _, p := range policies {
		broken[p.Name] = brokenOf(Judge(rows, p.Name))
	}
	for _, c := range []struct{ policy, property string }{
		{"least-request", "geometric mean"},
		{"no redraws", "geometric mean"},
		{"least-request", "p99 over peak-ewma"},
		{"ewma", "share to a worker that fails fast"},
		{"hasty", "evictions at 1 %"},
		{"ewma", "share of a worker in the 10 s after it recovers"},
		{"ewma", "errors at 110 %"},
	} {
		if !slices.ContainsFunc(broken[c.policy], func(text string) bool { return strings.HasPrefix(text, c.property) }) {
			t.Errorf("%s holds %q; it breaks only %q", c.policy, c.property, broken[c.policy])
		}
	}
	if len(broken["omniscient"]) > 0 {
		t.Errorf("the reference breaks %q", broken["omniscient"])
	}
}

// Figures that hold everything, spoilt one at a time.
func TestTheWorstCellIsJudged(t *testing.T) {
	good := func() []Row {
		var rows []Row
		for _, c := range Cells(Small, 1) {
			for _, name := range []string{policy.PeakEWMA.Name, Ours} {
				rows = append(rows, Row{
					Topology: c.Topology, Load: c.Load, Scenario: c.Scenario.Name, Compared: c.Compared, Policy: name,
					P99: 100, P99Ratio: 1.1, VictimMean: 0.8, VictimMax: 0.09,
				})
			}
		}
		return rows
	}
	if broken := brokenOf(Judge(good(), Ours)); broken != nil {
		t.Fatalf("good figures break %q", broken)
	}
	for want, c := range map[string]struct {
		scenario string
		spoil    func(*Row)
	}{
		"p99 over peak-ewma: 1.02, promised ≤ 1.01 (5 × 20, range 20, 90 %, equal)":                 {"equal", func(r *Row) { r.P99 = 102 }},
		"share to a worker that fails fast, over fair: 0.2, promised ≤ 0.1":                         {"failfast", func(r *Row) { r.VictimMax = 0.2 }},
		"evictions at 1 % background failures: 1, promised ≤ 0":                                     {"background", func(r *Row) { r.Evictions = 1 }},
		"share of a worker in the 10 s after it recovers, over fair: 0.6, promised ≥ 0.7":           {"recovery", func(r *Row) { r.VictimMean = 0.6 }},
		"errors at 110 % load, beyond the unavoidable: 0.02, promised ≤ 0.01 (5 × 20, range 20, 11": {"overload", func(r *Row) { r.ExcessErrors = 0.02 }},
	} {
		rows := good()
		for i := range rows {
			if r := &rows[i]; r.Policy == Ours && r.Scenario == c.scenario && r.Load >= 0.9 {
				c.spoil(r)
			}
		}
		if broken := brokenOf(Judge(rows, Ours)); len(broken) != 1 || !strings.HasPrefix(broken[0], want) {
			t.Errorf("%q, want %q alone", broken, want)
		}
	}
	rows := good()
	for i := range rows {
		rows[i].P99Ratio = 1.16
	}
	if broken := brokenOf(Judge(rows, Ours)); len(broken) != 1 || broken[0] != "geometric mean of p99 over the omniscient: 1.16, promised ≤ 1.15" {
		t.Errorf("a mean of 1.16 breaks %q", broken)
	}
}

func TestCellsThatWereNotRunAreNotJudged(t *testing.T) {
	rows := mustRun(t, Grid{Cells: []Cell{{Small, queueing.Equal, 0.1, 1, true}}, Policies: []queueing.Policy{policy.Omniscient, policy.Random}})
	properties := Judge(rows, policy.Random.Name)
	if len(properties) != 1 || !strings.HasPrefix(properties[0].Name, "geometric mean") {
		t.Errorf("judged %v", properties)
	}
}

func TestOneGridGivesOneReportWhateverTheOrder(t *testing.T) {
	g := Grid{Cells: []Cell{
		{Small, queueing.FailFast, 0.1, 2, true}, {Small, queueing.Background, 0.1, 2, false},
	}, Policies: []queueing.Policy{policy.Omniscient, policy.Ringway(Ours, selection.DefaultConfig()), policy.Prequal(0.6)}}
	one, other := mustRun(t, g), mustRun(t, g)
	for _, format := range Formats {
		var a, b strings.Builder
		for rows, out := range map[*[]Row]*strings.Builder{&one: &a, &other: &b} {
			if err := (&Report{Ours, Judge(*rows, Ours), *rows}).Write(out, format); err != nil {
				t.Fatal(err)
			}
		}
		if a.String() != b.String() {
			t.Errorf("%s differs:\n%s\n%s", format, a.String(), b.String())
		}
	}
}

func TestAGridWithoutReferenceIsRefused(t *testing.T) {
	_, err := Grid{Cells: Cells(Small, 1), Policies: []queueing.Policy{policy.Random}}.Run(nil)
	if err == nil || !strings.Contains(err.Error(), `must include "omniscient"`) {
		t.Error(err)
	}
}

func TestTheFullGridIsThatOfThePromise(t *testing.T) {
	scenarios := map[string]int{}
	for _, c := range Cells(Large, 1) {
		scenarios[c.Scenario.Name]++
	}
	want := map[string]int{
		"equal": 3, "hetero": 3, "bimodal": 3, "failfast": 3, "degrade": 3, "join": 3,
		"background": 3, "recovery": 3, "overload": 1,
	}
	if !maps.Equal(scenarios, want) {
		t.Errorf("cells are %v, want %v", scenarios, want)
	}
}
