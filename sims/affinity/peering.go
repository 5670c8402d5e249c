package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ringway/ringway/affinity"
)

const (
	drainDelay  = 30 * time.Second // the default of peering
	gracePeriod = 15 * time.Second // the default of the relay
	downTime    = 5 * time.Second  // of a process that restarts
)

// spares says how many relays the fleet has for each one that serves.
func spares(index affinity.IndexSource) int {
	if index == affinity.IndexSlot {
		return 2
	}
	return 1
}

// gentle measures what package peering makes of plans.
func gentle(r *report, _ []size) error {
	for _, part := range []func(*report) error{exchanges, rollouts, splits} {
		if err := part(r); err != nil {
			return err
		}
	}
	return nil
}

// exchanges: one member leaves for good and another one joins, a minute apart each. Runs
// are long because they are noisy: at (50,1000,3) with slack 2, ten seeds of 400 pairs of
// workers gave 8.5 to 10.0 connections per pair, 9.3 on average, and 50 pairs up to 10.9.
func exchanges(r *report) error {
	fmt.Fprintf(r, "\n**Opened when one leaves for good and another joins** (in brackets, connections held within slack)\n\n")
	slacks := []int{0, 1, 2, 4}
	head := []string{"fleet", "pair of", "index"}
	for _, slack := range slacks {
		head = append(head, fmt.Sprintf("slack %d", slack))
	}
	r.head(append(head, "lower bound")...)
	for _, c := range []struct {
		size        size
		relays      bool
		index       affinity.IndexSource
		warm, pairs int
	}{
		{size{50, 1000, 3}, false, affinity.IndexSlot, 50, 400},
		{size{50, 1000, 3}, true, affinity.IndexRank, 5, 15},
		{size{50, 1000, 3}, true, affinity.IndexSlot, 10, 30},
		{size{300, 10000, 3}, false, affinity.IndexSlot, 20, 20},
		{size{300, 10000, 3}, true, affinity.IndexRank, 1, 3},
		{size{300, 10000, 3}, true, affinity.IndexSlot, 1, 10},
	} {
		kind, bound := "workers", c.size.workerBound()
		if c.relays {
			kind, bound = "relays", c.size.relayBound()
		}
		cells := []string{c.size.String(), kind, string(c.index)}
		for _, slack := range slacks {
			opened, spare, err := exchange(c.size, gentleness{index: c.index, slack: slack, drain: drainDelay}, c.relays, c.warm, c.pairs)
			if err != nil {
				return err
			}
			cells = append(cells, fmt.Sprintf("%.1f (%.1f %%)", opened, 100*spare))
			if slack == 2 && !c.relays && c.index == affinity.IndexSlot && c.size.relays == 50 {
				r.require(opened <= 10, "%v: a pair of workers opens %.1f connections with slots and slack 2, more than 10", c.size, opened)
			}
		}
		r.row(append(cells, fmt.Sprintf("%.1f", bound))...)
	}
	return nil
}

// exchange returns the connections opened per pair and the share of those held in
// addition, after some pairs to begin with. With slots, the relay that leaves is one
// that serves; the one that joins may get no slot.
func exchange(s size, how gentleness, relays bool, warm, pairs int) (opened, spare float64, err error) {
	m := newMesh(s, how)
	f := newFleet(s.relays*spares(how.index), s.workers)
	v := m.newView()
	if err := m.begin(v, f); err != nil {
		return 0, 0, err
	}
	random := rand.New(rand.NewPCG(2, 2))
	next, held := max(len(f.relays), len(f.workers)), 0
	for pair := range warm + pairs {
		if pair == warm {
			m.opened, held = 0, 0
		}
		if relays {
			gone := number(v.plan.Affine()[random.IntN(s.relays)])
			f.relays = without(f.relays, slices.Index(f.relays, gone))
			m.kill(gone)
		} else {
			i := random.IntN(len(f.workers))
			m.killWorker(f.workers[i])
			f.workers = without(f.workers, i)
		}
		for range 2 {
			if err := m.all(v, f); err != nil {
				return 0, 0, err
			}
			m.pass(time.Minute)
			held += m.connections() - s.minimum()
			if len(f.workers) < s.workers {
				held += s.perWorker
				f.workers = with(f.workers, next)
			} else if len(f.relays) < s.relays*spares(how.index) {
				f.relays = with(f.relays, next)
				if err := m.start(next); err != nil {
					return 0, 0, err
				}
			}
		}
		next++
	}
	return float64(m.opened) / float64(pairs), float64(held) / float64(2*pairs*s.minimum()), nil
}

// rollouts: all relays restart one after another, or all workers a fiftieth at a time.
// What is counted is everything that any relay opens from the first restart until all is
// quiet, so the connections of a relay or worker that restarts, once, among them.
func rollouts(r *report) error {
	fmt.Fprintf(r, "\n**Opened while everybody restarts once, ÷ connections of the fleet**\n\n")
	r.head("fleet", "restarting", "index", "grace 15s, drain 30s", "no grace, drain 30s", "no grace, no drain")
	for _, s := range []size{{10, 100, 3}, {50, 1000, 3}} {
		for _, relays := range []bool{true, false} {
			for _, index := range []affinity.IndexSource{affinity.IndexRank, affinity.IndexSlot} {
				kind := "workers"
				if relays {
					kind = "relays"
				}
				cells := []string{s.String(), kind, string(index)}
				for _, how := range []gentleness{{grace: gracePeriod, drain: drainDelay}, {drain: drainDelay}, {drain: -1}} {
					how.index = index
					got, err := rollout(s, how, relays)
					if err != nil {
						return err
					}
					cells = append(cells, fmt.Sprintf("%.2f", got))
					if how.grace > 0 {
						r.require(got <= 1.1, "%v, %s: a rolling restart of all %s opens %.2f times the connections, more than 1.1", s, index, kind, got)
					}
				}
				r.row(cells...)
			}
		}
	}
	return nil
}

func rollout(s size, how gentleness, relays bool) (float64, error) {
	m := newMesh(s, how)
	f := newFleet(s.relays*spares(how.index), s.workers)
	v := m.newView()
	if err := m.begin(v, f); err != nil {
		return 0, err
	}
	steady := m.opened
	m.opened = 0
	members, batch := f.workers, s.workers/50
	if relays {
		members, batch = f.relays, 1
	}
	order := slices.Clone(members)
	rand.New(rand.NewPCG(3, 3)).Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	for down := range slices.Chunk(order, batch) {
		away := func(n int) bool { return slices.Contains(down, n) }
		during := fleet{f.relays, slices.DeleteFunc(slices.Clone(f.workers), away)}
		if relays {
			during = fleet{slices.DeleteFunc(slices.Clone(f.relays), away), f.workers}
		}
		for _, n := range down {
			if relays {
				m.kill(n)
			} else {
				m.killWorker(n)
			}
		}
		if err := m.all(v, during); err != nil {
			return 0, err
		}
		m.pass(downTime)
		for _, n := range down {
			if relays {
				if err := m.start(n); err != nil {
					return 0, err
				}
			}
		}
		if err := m.all(v, f); err != nil {
			return 0, err
		}
		m.pass(downTime)
	}
	m.pass(2 * drainDelay)
	return float64(m.opened) / float64(steady), nil
}

// splits: a random half of the relays knows of one change, the other half learns of it ten
// seconds later. Without grace and slack, which would hide the change.
func splits(r *report) error {
	fmt.Fprintf(r, "\n**While half of the relays know of a change: fewest relays of a worker (most workers below m)**\n\n")
	r.head("fleet", "index", "closing", events[0].name, events[1].name, events[2].name, events[3].name)
	for _, s := range []size{{7, 1000, 3}, {50, 1000, 3}, {101, 997, 3}} {
		for _, index := range []affinity.IndexSource{affinity.IndexRank, affinity.IndexSlot} {
			for _, drain := range []time.Duration{-1, drainDelay} {
				closing := "at once"
				if drain > 0 {
					closing = "after 30 s"
				}
				cells := []string{s.String(), string(index), closing}
				for i, e := range events {
					lowest, short, err := split(s, gentleness{index: index, drain: drain}, e)
					if err != nil {
						return err
					}
					cells = append(cells, fmt.Sprintf("%d (%d)", lowest, short))
					if drain > 0 {
						least := s.perWorker - 1
						if joins := i%2 == 0; joins {
							least = s.perWorker
						}
						r.require(lowest >= least, "%v, %s, %s known to half of the relays: a worker has %d relays, fewer than %d", s, index, e.name, lowest, least)
					}
				}
				r.row(cells...)
			}
		}
	}
	return nil
}

// split returns the worst of all trials, for workers that everybody knows.
func split(s size, how gentleness, e event) (lowest, short int, err error) {
	f := newFleet(s.relays*spares(how.index), s.workers)
	random := rand.New(rand.NewPCG(4, 4))
	lowest = s.relays
	for trial := range trials {
		m := newMesh(s, how)
		if err := m.begin(m.newView(), f); err != nil {
			return 0, 0, err
		}
		after := e.change(f, random, trial)
		var half, rest []int
		for _, relay := range after.relays {
			if m.stations[relay] == nil { // it has joined, and knows
				if err := m.start(relay); err != nil {
					return 0, 0, err
				}
				half = append(half, relay)
			} else if random.IntN(2) == 0 {
				half = append(half, relay)
			} else {
				rest = append(rest, relay)
			}
		}
		for _, relay := range f.relays {
			if !slices.Contains(after.relays, relay) {
				m.kill(relay)
			}
		}
		known := slices.DeleteFunc(slices.Clone(after.workers), func(w int) bool { return w >= len(f.workers) })
		v := m.newView()
		if err := m.learn(v, after); err != nil {
			return 0, 0, err
		}
		look := func() {
			l, n := m.coverage(known)
			lowest, short = min(lowest, l), max(short, n)
		}
		if err := m.follow(v, half); err != nil {
			return 0, 0, err
		}
		look()
		m.pass(10 * time.Second)
		if err := m.follow(v, rest); err != nil {
			return 0, 0, err
		}
		look()
		m.pass(time.Minute)
		look()
	}
	return lowest, short, nil
}
