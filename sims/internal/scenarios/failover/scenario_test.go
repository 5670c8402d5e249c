package failover

import (
	"math"
	"slices"
	"testing"

	"github.com/ringway/ringway/sims/internal/scenario"
	"github.com/ringway/ringway/sims/internal/scenario/scenariotest"
)

var small = []string{"adjacent-relays=20", "adjacent-workers=400", "after=25s"}

func broken(set ...string) []string { return append(append([]string{}, small...), set...) }

func TestEachPromiseCanFail(t *testing.T) {
	if raceDetector {
		t.Skip("runs without the race detector")
	}
	scenariotest.EachCanFail(t, New(), map[string]scenariotest.Break{
		// No relay takes over.
		covered: {Scenario: with(subject{homeOnly: true, ranges: hashed}), Set: small},
		busy:    {Scenario: with(subject{homeOnly: true, ranges: hashed}), Set: small},
		// No member has a place, so that all members see a loss.
		untouched: {Set: broken("places=false")},
		// Neighbours on the ring are neighbours in the rack.
		spread: {Scenario: with(subject{ranges: byAddress}), Set: small},
		// All workers are equally near.
		staysNear: {Set: broken("tiers=false")},
		recovers:  {Set: broken("tiers=false")},
		// A member that fails stays.
		failing: {Set: broken("consecutive-failures=1000000", "error-rate-threshold=0.999", "load=0.9")},
	})
}

func TestItHoldsWithOtherSettings(t *testing.T) {
	if raceDetector {
		t.Skip("runs without the race detector")
	}
	for _, set := range []string{"relays=3", "workers=7", "adjacent-relays=10", "load=0.4", "adjacent-share=0.05"} {
		scenariotest.Holds(t, New(), broken(set)...)
	}
}

func TestItRepeats(t *testing.T) { scenariotest.Repeats(t, New(), small...) }

// near is the share of the traffic that stays near while something lasts, in percent.
func near(t *testing.T, row string, set ...string) float64 {
	t.Helper()
	for _, line := range scenariotest.Run(t, New(), broken(set...)...).Table("traffic").Rows {
		if line[0] == row {
			return line[1].(float64)
		}
	}
	t.Fatalf("no row %q", row)
	return 0
}

func TestOverprovisioningDecidesHowMuchSpills(t *testing.T) {
	if raceDetector {
		t.Skip("runs without the race detector")
	}
	for set, want := range map[string]float64{"overprovisioning=1": 50, "overprovisioning=1.4": 70, "overprovisioning=3": 100} {
		if got := near(t, "half is sick", set); math.Abs(got-want) > 4 {
			t.Errorf("%s: %.1f %% stays near while half of the workers are sick, want %v", set, got, want)
		}
	}
}

func TestALongerEvictionComesBackLater(t *testing.T) {
	if raceDetector {
		t.Skip("runs without the race detector")
	}
	back := func(set ...string) float64 {
		for _, line := range scenariotest.Run(t, New(), broken(set...)...).Table("traffic").Rows {
			if line[0] == "half is sick" {
				return float64(line[5].(int))
			}
		}
		return 0
	}
	if short, long := back("max-eviction=1s"), back("max-eviction=5m"); short >= long {
		t.Errorf("back after %v s with evictions of a second at most, %v s with longer ones", short, long)
	}
}

func TestSecondsAreJudgedByWhenTheyAre(t *testing.T) {
	seconds := make([]second, begins+happens+20)
	for i := range seconds {
		seconds[i].sent = [tiers]int{100, 0, 0}
	}
	for i := begins; i < begins+happens+4; i++ {
		seconds[i].sent = [tiers]int{40, 50, 10}
	}
	seconds[begins+2].failed = 50
	seconds[begins+happens-1].failed = 0
	got := courseOf(seconds)
	if want := (course{near: [3]float64{1, 0.4, 1}, until: 3, back: 4}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	seconds[begins+happens-1].failed = 100
	if got := courseOf(seconds); got.failed != 0.1 || got.until != happens {
		t.Errorf("%+v", got)
	}
}

func TestALossIsTheShareOfEachRange(t *testing.T) {
	ranges := [][]int{{0, 1, 2, 3}, {2, 3, 4, 5}, {8, 9, 0, 1}}
	for begin, want := range map[int][]float64{0: {0.5, 0.5, 0}, 9: {0.5, 0.25, 0}, 3: {0.5, 0.25, 0}} {
		if got := lossOf(ranges, 10, begin, 2); !slices.Equal(got, want) {
			t.Errorf("from %d: %v, want %v", begin, got, want)
		}
	}
}

func TestRangesAreThoseOfPlansInEitherOrder(t *testing.T) {
	a, err := hashed(50, 1000)
	if err != nil {
		t.Fatal(err)
	}
	b, err := byAddress(50, 1000)
	if err != nil {
		t.Fatal(err)
	}
	for i := range a {
		if len(a[i]) != len(b[i]) || len(b[i]) != 60 || b[i][59] != (b[i][0]+59)%1000 {
			t.Fatalf("relay %d has %d workers by hash, %v by address", i, len(a[i]), b[i])
		}
	}
}

func TestALossTakesItsShare(t *testing.T) {
	s := New()
	s.Run = func(r *scenario.Run) error {
		all := fleetOf(r)
		for i, want := range [][2]int{{24, 180}, {18, 240}, {18, 180}, {12, 120}} {
			rest := losses[i].from(r, all)
			if got := [2]int{len(rest.relays), len(rest.workers)}; got != want || rest.workers[len(rest.workers)-1].Datacenter != "chi" {
				t.Errorf("%s: %v are left, want %v", losses[i].name, got, want)
			}
		}
		for _, p := range s.Promises {
			r.Skip(p.Name, "nothing was run")
		}
		return nil
	}
	scenariotest.Run(t, s)
}
