package main

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/ringway/ringway/affinity"
)

// size is one fleet to compare at: relays, workers, and relays per worker. p, the workers
// per relay, is the default.
type size struct{ relays, workers, perWorker int }

var sizes = []size{
	{10, 100, 3}, {50, 1000, 3}, {50, 1009, 3}, {100, 1000, 5},
	{300, 10000, 3}, {1000, 100, 3}, {7, 1000, 3}, {100, 10, 3},
}

var perRelay = affinity.DefaultMinimums.PeersPerRelay

func (s size) String() string {
	return fmt.Sprintf("R = %d, W = %d, m = %d", s.relays, s.workers, s.perWorker)
}

// byWorkers reports whether the workers' minimum decides: m·W ≥ p·R.
func (s size) byWorkers() bool { return s.perWorker*s.workers >= perRelay*s.relays }

// minimum is the fewest connections that keep both minimums.
func (s size) minimum() int { return max(s.perWorker*s.workers, perRelay*s.relays) }

// reach is how many workers a relay needs, as a whole number.
func (s size) reach() int {
	return min(s.workers, max(perRelay, (s.perWorker*s.workers+s.relays-1)/s.relays))
}

// workerBound and relayBound are the fewest connections that one worker or relay more or
// less can move: those of the member itself, and on the side whose minimum does not decide,
// as many again to keep the minimum of the other side.
func (s size) workerBound() float64 {
	if s.byWorkers() {
		return float64(s.perWorker)
	}
	return 2 * float64(perRelay*s.relays) / float64(s.workers)
}

func (s size) relayBound() float64 {
	if s.byWorkers() {
		return 2 * float64(s.perWorker*s.workers) / float64(s.relays)
	}
	return float64(perRelay)
}

// fleet is who is there: numbers of relays and workers, in no particular order.
type fleet struct{ relays, workers []int }

func newFleet(relays, workers int) fleet {
	f := fleet{make([]int, relays), make([]int, workers)}
	for i := range f.relays {
		f.relays[i] = i
	}
	for i := range f.workers {
		f.workers[i] = i
	}
	return f
}

func without(members []int, i int) []int { return slices.Delete(slices.Clone(members), i, i+1) }

func with(members []int, id int) []int { return append(slices.Clone(members), id) }

func relayID(n int) string  { return "relay-" + strconv.Itoa(n) }
func workerID(n int) string { return "worker-" + strconv.Itoa(n) }

func ids(members []int, name func(int) string) []string {
	out := make([]string, len(members))
	for i, n := range members {
		out[i] = name(n)
	}
	return out
}
