package main

import (
	"testing"

	"github.com/ringway/ringway/affinity"
)

func TestARollingRestartWithGraceOpensEveryConnectionOnce(t *testing.T) {
	s := size{10, 100, 3}
	for _, relays := range []bool{true, false} {
		for _, index := range []affinity.IndexSource{affinity.IndexRank, affinity.IndexSlot} {
			with, err := rollout(s, gentleness{index: index, grace: gracePeriod, drain: drainDelay}, relays)
			if err != nil {
				t.Fatal(err)
			}
			without, err := rollout(s, gentleness{index: index, drain: -1}, relays)
			if err != nil {
				t.Fatal(err)
			}
			if with != 1 || without < 2 {
				t.Errorf("relays %v, %s: %.2f with grace, %.2f without: want 1 and more than 2", relays, index, with, without)
			}
		}
	}
}

func TestWhileHalfOfTheRelaysKnowDrainingKeepsWorkersCovered(t *testing.T) {
	s := size{7, 100, 3}
	for i, least := range []int{3, 2, 3, 2} { // as events are in order: joins, leaves, twice
		drained, _, err := split(s, gentleness{drain: drainDelay}, events[i])
		if err != nil {
			t.Fatal(err)
		}
		hard, short, err := split(s, gentleness{drain: -1}, events[i])
		if err != nil {
			t.Fatal(err)
		}
		if drained < least || hard >= s.perWorker || short == 0 {
			t.Errorf("%s: fewest relays of a worker %d with draining, %d without: want %d and fewer than %d", events[i].name, drained, hard, least, s.perWorker)
		}
	}
}

func TestSlackSparesOpenings(t *testing.T) {
	before := 1e9
	for _, slack := range []int{0, 1, 2, 4} {
		opened, spare, err := exchange(size{20, 200, 3}, gentleness{index: affinity.IndexSlot, slack: slack, drain: drainDelay}, false, 20, 60)
		if err != nil {
			t.Fatal(err)
		}
		if opened >= before || slack == 0 && spare != 0 {
			t.Errorf("slack %d opens %.1f connections per pair, not fewer than the %.1f of less slack, and holds %.3f more", slack, opened, before, spare)
		}
		before = opened
	}
}
