package churn

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/sims/internal/fleet"
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
	return with(subject{all})
}

// little is enough to see a promise break.
func little(set ...string) []string {
	return append([]string{"trials=5", "fleets=10x100x3", "pairs=16", "slacks=2", "index=slot", "rollout-fleets=10x100x3", "split-fleets=7x100x3"}, set...)
}

func TestEachPromiseCanFail(t *testing.T) {
	scenariotest.EachCanFail(t, New(), map[string]scenariotest.Break{
		slotNear:   {Scenario: swapped(fleet.BySlot), Set: little("fleets=50x1000x3", "trials=40")},
		rendezNear: {Scenario: swapped(fleet.Rendezvous), Set: little("fleets=10x100x3", "trials=30")},
		slackSaves: {Set: little("slack=0")},
		graceHolds: {Set: little("grace=0s")},
		splitHolds: {Set: little("drain=0s")},
	})
}

func TestItRepeats(t *testing.T) {
	scenariotest.Repeats(t, New(), little()...)
}

// With rendezvous nothing is promised of slots, and the rest holds.
func TestItHoldsWithRendezvousUnderPeering(t *testing.T) {
	scenariotest.Holds(t, New(), "strategy=rendezvous", "trials=10", "fleets=50x1000x3", "pairs=10", "slacks=2", "rollout-fleets=10x100x3", "split-fleets=7x100x3")
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
