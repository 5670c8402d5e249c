package main

import (
	"fmt"
	"math/rand/v2"
)

// trials is how often each event happens, each time to the same fleet.
const trials = 50

// event is one change of the fleet.
type event struct {
	name   string
	relays bool // whether it happens to a relay
	change func(f fleet, random *rand.Rand, trial int) fleet
}

var events = []event{
	{"worker joins", false, func(f fleet, _ *rand.Rand, trial int) fleet {
		return fleet{f.relays, with(f.workers, newcomer(len(f.workers), trial))}
	}},
	{"worker leaves", false, func(f fleet, random *rand.Rand, _ int) fleet {
		return fleet{f.relays, without(f.workers, random.IntN(len(f.workers)))}
	}},
	{"relay joins", true, func(f fleet, _ *rand.Rand, trial int) fleet {
		return fleet{with(f.relays, newcomer(len(f.relays), trial)), f.workers}
	}},
	{"relay leaves", true, func(f fleet, random *rand.Rand, _ int) fleet {
		return fleet{without(f.relays, random.IntN(len(f.relays))), f.workers}
	}},
}

// moves is a mean and a maximum over trials.
type moves struct {
	sum, max, n int
}

func (m *moves) add(n int) { m.sum, m.max, m.n = m.sum+n, max(m.max, n), m.n+1 }

func (m moves) mean() float64 { return float64(m.sum) / float64(m.n) }

func (m moves) String() string { return fmt.Sprintf("%.1f (%d)", m.mean(), m.max) }

// churn compares how many connections one member more or less opens and closes.
func churn(r *report, sizes []size) error {
	for _, s := range sizes {
		fmt.Fprintf(r, "\n**%v**\n\n", s)
		heads, bounds := []string{"strategy"}, []string{"lower bound"}
		for _, e := range events {
			heads = append(heads, e.name)
			bounds = append(bounds, fmt.Sprintf("%.1f", bound(s, e)))
		}
		r.head(heads...)
		r.row(bounds...)
		for _, st := range strategies {
			cells := []string{st.name}
			for _, e := range events {
				got, err := movedBy(e, st, s)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", st.name, e.name, err)
				}
				cells = append(cells, got.String())
				checkChurn(r, s, st, e, got)
			}
			r.row(cells...)
		}
	}
	return nil
}

func bound(s size, e event) float64 {
	if e.relays {
		return s.relayBound()
	}
	return s.workerBound()
}

// movedBy repeats an event. Where the fleet has spare relays, an event that changes nothing
// does not count: a spare has left, or a relay has joined that got no slot.
func movedBy(e event, st strategy, s size) (moves, error) {
	f := newFleet(s.relays*st.spares, s.workers)
	before, err := connections(st, s, f, f)
	if err != nil {
		return moves{}, err
	}
	random := rand.New(rand.NewPCG(1, 1))
	var out moves
	for trial := 0; out.n < trials && trial < 100*trials; trial++ {
		after, err := connections(st, s, f, e.change(f, random, trial))
		if err != nil {
			return moves{}, err
		}
		if n := moved(before, after); n > 0 || st.spares == 1 {
			out.add(n)
		}
	}
	return out, nil
}

// connections draws the graph of a fleet that came of another by one event.
func connections(st strategy, s size, before, after fleet) (*graph, error) {
	g := newGraph(before)
	return g, st.connect(g, s, after)
}

// newcomer is the number of the member that joins in a trial: always another one.
func newcomer(members, trial int) int { return members + trial }

// checkChurn: slots and rendezvous stay near the bound where the tables say so.
func checkChurn(r *report, s size, st strategy, e event, got moves) {
	within := func(factor float64) {
		r.require(got.mean() <= factor*bound(s, e), "%v, %s, %s: %.1f connections move on average, more than %.1f times the bound of %.1f",
			s, st.name, e.name, got.mean(), factor, bound(s, e))
	}
	switch {
	case st.name == "projection, slot" && e.relays && (s == size{50, 1000, 3} || s == size{300, 10000, 3}):
		within(1.3)
	case st.name == "rendezvous" && s.byWorkers():
		within(1.1)
	}
}
