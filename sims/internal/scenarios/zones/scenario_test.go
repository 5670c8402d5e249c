package zones

import (
	"math"
	"os"
	"testing"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/sims/internal/report"
	"github.com/ringway/ringway/sims/internal/scenario"
	"github.com/ringway/ringway/sims/internal/scenario/scenariotest"
)

// mixed plans as if all members were in one zone.
func mixed(cfg affinity.PlanConfig) (*affinity.Plan, error) {
	for i := range cfg.Relays {
		cfg.Relays[i].Place = affinity.Place{}
	}
	for i := range cfg.Workers {
		cfg.Workers[i].Place = affinity.Place{}
	}
	return affinity.NewPlan(cfg)
}

func TestEachPromiseCanFail(t *testing.T) {
	scenariotest.EachCanFail(t, New(), map[string]scenariotest.Break{
		crosses: {Scenario: with(subject{mixed})},
		fullest: {Set: []string{"known=false"}},
	})
}

func TestItRepeats(t *testing.T) { scenariotest.Repeats(t, New()) }

func TestItHoldsForOtherFleets(t *testing.T) {
	for _, set := range [][]string{
		{"strategy=rendezvous"}, {"zones=2", "relays=3", "workers=7"}, {"zones=6", "relays=5", "workers=31", "m=4"}, {"skews=0.25,4"},
	} {
		scenariotest.Holds(t, New(), set...)
	}
}

// row returns the crossing traffic in percent and the load of the fullest worker.
func row(t *testing.T, r *scenario.Result, skew float64, kind string) (crossing, load float64) {
	t.Helper()
	for _, line := range r.Table("zones").Rows {
		if line[0] == skew && line[1] == kind {
			return line[2].(float64), line[4].(float64)
		}
	}
	t.Fatalf("no row for %v, %s", skew, kind)
	return 0, 0
}

// Of three zones with 3 to 1 to 1 of the traffic, the first has 60 % and its workers a third.
func TestMoreSlackKeepsMoreTrafficInItsZoneAndLoadsWorkersMore(t *testing.T) {
	r := scenariotest.Run(t, New(), "skews=1,3")
	for _, c := range []struct {
		skew           float64
		kind           string
		crossing, load float64
	}{
		{1, "slack 1", 0, 1}, {1, "slack 1.1", 0, 1}, {1, "every zone keeps to itself", 0, 1},
		{3, "slack 1", 60 - 100./3, 1}, {3, "slack 1.1", 60 - 110./3, 1.1}, {3, "slack 1.5", 10, 1.5}, {3, "every zone keeps to itself", 0, 1.8},
	} {
		if crossing, load := row(t, r, c.skew, c.kind); math.Abs(crossing-c.crossing) > 1e-3 || math.Abs(load-c.load) > 1e-4 {
			t.Errorf("%v, %s: %v %% crosses and the fullest worker has %v, want %v %% and %v", c.skew, c.kind, crossing, load, c.crossing, c.load)
		}
	}
	if crossing, _ := row(t, r, 3, "no zones"); crossing < 50 {
		t.Errorf("without zones only %v %% crosses", crossing)
	}
}

func TestAZoneWithLessTrafficTakesWhatTheOthersCannot(t *testing.T) {
	// The others have 40 % each, and their workers take 1.1 thirds.
	r := scenariotest.Run(t, New(), "skews=0.5")
	if crossing, load := row(t, r, 0.5, "slack 1.1"); math.Abs(crossing-(80-220./3)) > 1e-3 || math.Abs(load-1.1) > 1e-4 {
		t.Errorf("%v %% crosses and the fullest worker has %v", crossing, load)
	}
}

const page = "../../../../docs/concepts/affinity.md"

func TestThePageShowsWhatTheScenarioMeasures(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	fresh, err := report.UpdatePage(string(text), []*scenario.Result{scenariotest.Holds(t, New(), "skews=1,1.5,3")})
	if err != nil {
		t.Fatal(err)
	}
	if fresh != string(text) {
		t.Errorf("%s is stale: run make bench-affinity", page)
	}
}
