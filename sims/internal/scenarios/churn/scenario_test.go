package churn

import (
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/sims/internal/fleet"
	"github.com/ringway/ringway/sims/internal/report"
	"github.com/ringway/ringway/sims/internal/scenario"
	"github.com/ringway/ringway/sims/internal/scenario/scenariotest"
)

// swapped has our strategies in each other's place.
func swapped(name string) scenario.Scenario {
	all := fleet.Strategies()
	for i := range all {
		if all[i].Name == name {
			all[i].Connect, all[i].Spares = all[0].Connect, all[0].Spares
		}
	}
	return with(subject{all, affinity.IndexSlot})
}

// little is enough to see a promise break.
func little(set ...string) []string {
	return append([]string{"trials=5", "fleets=10x100x3", "pairs=16", "slacks=2", "index=slot", "rollout-fleets=10x100x3", "split-fleets=7x100x3", "default-fleets=50x500x3", "growth-steps=4"}, set...)
}

func TestEachPromiseCanFail(t *testing.T) {
	scenariotest.EachCanFail(t, New(), map[string]scenariotest.Break{
		slotNear:   {Scenario: swapped(fleet.BySlot), Set: little("fleets=50x1000x3", "trials=40")},
		rendezNear: {Scenario: swapped(fleet.Rendezvous), Set: little("fleets=10x100x3", "trials=30")},
		slackSaves: {Set: little("slack=0")},
		graceHolds: {Set: little("grace=0s")},
		splitHolds: {Set: little("drain=0s")},

		relaysUsual:   {Scenario: with(subject{fleet.Strategies(), affinity.IndexRank}), Set: little()},
		replacedUsual: {Scenario: with(subject{fleet.Strategies(), affinity.IndexRank}), Set: little("trials=20")},
		workersUsual:  {Set: little("slack=0", "default-fleets=200x3400x3")},
	})
}

func TestItRepeats(t *testing.T) {
	scenariotest.Repeats(t, New(), little()...)
}

// With rendezvous nothing is promised of slots, and the rest holds.
func TestItHoldsWithRendezvousUnderPeering(t *testing.T) {
	scenariotest.Holds(t, New(), "strategy=rendezvous", "trials=40", "fleets=50x1000x3", "pairs=10", "slacks=2", "default-fleets=50x300x3", "growth-steps=4", "rollout-fleets=10x100x3", "split-fleets=7x100x3")
}

func random() *rand.Rand { return rand.New(rand.NewPCG(3, 3)) }

func TestARollingRestartWithGraceOpensEveryConnectionOnce(t *testing.T) {
	s := size(10, 100, 3)
	for _, relays := range []bool{true, false} {
		for _, index := range []affinity.IndexSource{affinity.IndexRank, affinity.IndexSlot} {
			with, err := rollout(s, fleet.RolloutPolicy{Index: index, Grace: 15 * time.Second, Drain: 30 * time.Second}, relays, random())
			if err != nil {
				t.Fatal(err)
			}
			without, err := rollout(s, fleet.RolloutPolicy{Index: index, Drain: -1}, relays, random())
			if err != nil {
				t.Fatal(err)
			}
			if with != 1 || without < 2 {
				t.Errorf("relays %v, %s: %.2f with grace, %.2f without: want 1 and more than 2", relays, index, with, without)
			}
		}
	}
}

// usually returns one part of the figures at the defaults.
func usually(t *testing.T, part func(*scenario.Run, fleet.Size, fleet.RolloutPolicy, *usual) error, s fleet.Size, strategy affinity.Strategy) (got usual) {
	t.Helper()
	sc := New()
	sc.Run = func(r *scenario.Run) error {
		for _, p := range sc.Promises {
			r.Skip(p.Name, "one part alone")
		}
		how := fleet.RolloutPolicy{Auto: true, Index: affinity.IndexSlot, Strategy: strategy, Slack: 2, Grace: 15 * time.Second, Drain: 30 * time.Second}
		return part(r, s, how, &got)
	}
	scenariotest.Run(t, sc, "trials=10", "growth-steps=12")
	return got
}

// The ranges of a relay and of the m-1 next ones on each side overlap, and no others.
func TestProjectionSharesWorkersWithFewRelaysAndRendezvousWithMany(t *testing.T) {
	for m := 3; m <= 5; m++ {
		near := usually(t, failures, size(50, 1000, m), affinity.Projection)
		if want := (1000*(m-1) + 47) / 48; near.serving != 48 || near.sharing != float64(2*(m-1)) || near.worstPair != want {
			t.Errorf("m = %d: %d relays serve, one shares workers with %v and at most %d with one, want 48, %d and %d", m, near.serving, near.sharing, near.worstPair, 2*(m-1), want)
		}
		wide := usually(t, failures, size(50, 1000, m), affinity.Rendezvous)
		if wide.serving != 50 || wide.sharing < 40 || wide.sharing > 49 || wide.worstPair >= near.worstPair/2 {
			t.Errorf("m = %d: by rendezvous %d relays serve, and one shares workers with %v and at most %d with one", m, wide.serving, wide.sharing, wide.worstPair)
		}
	}
}

func TestAWorkerMovesOnlyItsOwnConnectionsWithRendezvous(t *testing.T) {
	if got := usually(t, exchangesOfWorkers, size(20, 200, 3), affinity.Rendezvous).exchanged; got.value() != 1 || got.least != 3*3*10 {
		t.Errorf("%v", got)
	}
	if got := usually(t, exchangesOfWorkers, size(20, 200, 3), affinity.Projection).exchanged; got.value() <= 1 {
		t.Errorf("projection moves nothing else: %v", got)
	}
}

// Nothing is opened twice where every relay serves before and after: 10 of 10.
func TestGrowthOpensWhatIsNewAndProjectionMore(t *testing.T) {
	got := usually(t, growth, size(10, 500, 3), affinity.Rendezvous).grown
	if got.value() < 1 || got.value() > 1.05 || got.least != 3*450 {
		t.Errorf("rendezvous: %v", got)
	}
	if more := usually(t, growth, size(10, 500, 3), affinity.Projection).grown; more.least != got.least || more.value() <= got.value() {
		t.Errorf("projection: %v, rendezvous: %v", more, got)
	}
}

// A relay of another name that takes the place of one that served costs at least the connections
// of that one.
func TestARelayThatLeavesCostsItsOwnConnections(t *testing.T) {
	for _, strategy := range []affinity.Strategy{affinity.Projection, affinity.Rendezvous} {
		// By rendezvous slack keeps the connections that a relay which joins has made superfluous,
		// and they count when the next one leaves.
		without := func(part func(*scenario.Run, fleet.Size, fleet.RolloutPolicy, *usual) error) func(*scenario.Run, fleet.Size, fleet.RolloutPolicy, *usual) error {
			return func(r *scenario.Run, s fleet.Size, how fleet.RolloutPolicy, got *usual) error {
				if strategy == affinity.Rendezvous {
					how.Slack = 0
				}
				return part(r, s, how, got)
			}
		}
		apart := usually(t, without(departures), size(20, 200, 3), strategy)
		if apart.leaves.value() < 0.9 || apart.leaves.value() > 2.5 || apart.joins.least != apart.leaves.least || apart.joins.opened == 0 {
			t.Errorf("%s: leaves %v, joins %v", strategy, apart.leaves, apart.joins)
		}
		if at := usually(t, without(replacements), size(20, 200, 3), strategy).replaced; at.value() < 1 {
			t.Errorf("%s: replaced %v", strategy, at)
		}
	}
}

// With 20 relays 18 serve, and with 21 relays 20.
func TestARelayTooManyShiftsAllRangesWhereMoreThenServe(t *testing.T) {
	if at := usually(t, replacements, size(20, 200, 3), affinity.Projection).replaced; at.value() < 10 {
		t.Errorf("replaced %v: the page says 13", at)
	}
}

// The larger fleet of the page takes too long for a test.
func TestThePageShowsTheFiguresAtTheDefaults(t *testing.T) {
	s := New()
	s.Run = func(r *scenario.Run) error {
		for _, p := range s.Promises {
			r.Skip(p.Name, "the defaults alone")
		}
		return atDefaults(r, subject{fleet.Strategies(), affinity.IndexSlot})
	}
	rows, err := report.UpdatePage("<!-- begin defaults --><!-- end defaults -->", []*scenario.Result{scenariotest.Run(t, s, "default-fleets=50x1000x3", "growth-steps=288")})
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../../../docs/concepts/affinity.md")
	if err != nil {
		t.Fatal(err)
	}
	rows = strings.TrimSuffix(strings.TrimPrefix(rows, "<!-- begin defaults -->"), "<!-- end defaults -->")
	if !strings.Contains(string(page), rows) {
		t.Errorf("the page is stale, run make bench-affinity: it does not contain%s", rows)
	}
}

func TestSlackSparesOpenings(t *testing.T) {
	before := 1e9
	for _, slack := range []int{0, 1, 2, 4} {
		x := exchange{size: size(20, 200, 3), how: fleet.RolloutPolicy{Index: affinity.IndexSlot, Slack: slack, Drain: 30 * time.Second}, warm: 20, pairs: 60, random: random()}
		opened, spare, err := x.run()
		if err != nil {
			t.Fatal(err)
		}
		if opened >= before || slack == 0 && spare != 0 {
			t.Errorf("slack %d opens %.1f connections per pair, not fewer than the %.1f of less slack, and holds %.3f more", slack, opened, before, spare)
		}
		before = opened
	}
}
