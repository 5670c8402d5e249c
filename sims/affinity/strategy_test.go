package main

import (
	"math"
	"slices"
	"testing"
)

func graphOf(t *testing.T, name string, s size) (*graph, fleet) {
	t.Helper()
	i := slices.IndexFunc(strategies, func(st strategy) bool { return st.name == name })
	if i < 0 {
		t.Fatalf("no strategy %q", name)
	}
	f := newFleet(s.relays*strategies[i].spares, s.workers)
	g := newGraph(f)
	if err := strategies[i].connect(g, s, f); err != nil {
		t.Fatal(err)
	}
	return g, f
}

// Every relay hands out its whole traffic, whatever the strategy.
func TestSharesOfARelaySumToOne(t *testing.T) {
	for _, s := range []size{{7, 100, 3}, {50, 101, 3}, {30, 7, 4}} {
		for _, st := range strategies {
			g, _ := graphOf(t, st.name, s)
			sum := 0.0
			for _, load := range g.load {
				sum += load
			}
			if math.Abs(sum-float64(s.relays)) > 1e-9 {
				t.Errorf("%v, %s: %d relays hand out %v", s, st.name, s.relays, sum)
			}
		}
	}
}

// What is known of the others, from their own descriptions or from counting.
func TestTheOthersAreWhatTheySay(t *testing.T) {
	for _, c := range []struct {
		strategy    string
		size        size
		connections int
		coverage    span
		peak        float64
	}{
		// Two roundings that differ make connections that nobody needs.
		{"Hyperbahn, description", size{50, 1009, 3}, 3052, span{3, 4}, 1.323},
		{"Hyperbahn, production", size{50, 1009, 3}, 3099, span{3, 4}, 1.307},
		// Whole turns of the ring: equal load, and a partial worker at the ends.
		{"Finagle, same coverage", size{50, 1009, 3}, 3076, span{3, 4}, 1},
		{"Finagle, same coverage", size{50, 1000, 3}, 3000, span{3, 3}, 1},
		{"Finagle, aperture 12", size{50, 1000, 3}, 1000, span{1, 1}, 1},
	} {
		g, f := graphOf(t, c.strategy, c.size)
		got := measure(g, f)
		if got.connections != c.connections || got.perWorker != c.coverage || math.Abs(got.peak-c.peak) > 0.0005 {
			t.Errorf("%s, %v: %+v, want %d connections, %v, load %v", c.strategy, c.size, got, c.connections, c.coverage, c.peak)
		}
	}
	// Every round of clients covers every backend once: 3 rounds of 20 at 60 clients.
	g, f := graphOf(t, "SRE book", size{60, 1000, 3})
	if got := measure(g, f); got.perWorker != (span{3, 3}) || got.perRelay != (span{50, 50}) {
		t.Errorf("SRE book, whole rounds: %+v", got)
	}
	// Every client alone: sizes are right, coverage is chance.
	g, f = graphOf(t, "random (A68)", size{50, 1000, 3})
	if got := measure(g, f); got.perRelay != (span{60, 60}) || got.perWorker.max < 6 || got.perWorker.min > 1 {
		t.Errorf("random: %+v", got)
	}
}

// Random subsetting promises that one server more takes at most one place per client.
func TestOneServerMoreTakesAtMostOnePlacePerClient(t *testing.T) {
	s := size{40, 300, 3}
	f := newFleet(s.relays, s.workers)
	before, after := newGraph(f), newGraph(f)
	if err := random(before, s, f); err != nil {
		t.Fatal(err)
	}
	if err := random(after, s, fleet{f.relays, with(f.workers, 300)}); err != nil {
		t.Fatal(err)
	}
	for _, relay := range f.relays {
		lost := 0
		for _, worker := range f.workers {
			if before.connected(relay, worker) && !after.connected(relay, worker) {
				lost++
			}
		}
		if lost > 1 {
			t.Errorf("client %d lost %d servers", relay, lost)
		}
	}
}
