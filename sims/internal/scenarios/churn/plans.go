package churn

import (
	"fmt"
	"slices"

	"github.com/ringway/ringway/sims/internal/fleet"
	"github.com/ringway/ringway/sims/internal/scenario"
)

// moves is a mean and a maximum over trials.
type moves struct {
	sum, max, n int
}

func (m *moves) add(n int) { m.sum, m.max, m.n = m.sum+n, max(m.max, n), m.n+1 }

func (m moves) mean() float64 { return float64(m.sum) / float64(max(1, m.n)) }

// plans counts the connections that one member more or less moves in the plan.
func plans(r *scenario.Run, sub subject, sizes []fleet.Size) error {
	events := fleet.Events()
	each := len(sub.strategies) * len(events)
	got := make([]moves, len(sizes)*each)
	if err := r.Parallel(len(got), func(i int) (err error) {
		s, st, e := sizes[i/each], sub.strategies[i%each/len(events)], events[i%len(events)]
		got[i], err = movedBy(r, e, st, s)
		if err != nil {
			return fmt.Errorf("%s, %s: %w", st.Name, e.Name, err)
		}
		return nil
	}); err != nil {
		return err
	}
	t := r.Table(scenario.Table{
		Name: "plans", Title: "connections that one member moves in the plan, mean and most", Section: "churn", Group: 3,
		Columns: []scenario.Column{{Name: "R", Key: true}, {Name: "W", Key: true}, {Name: "m", Key: true}, {Name: "strategy", Key: true}},
	})
	for _, e := range events {
		t.Columns = append(t.Columns, scenario.Column{Name: e.Name, Digits: 1}, scenario.Column{Name: "most"})
	}
	for k, s := range sizes {
		row := []any{s.Relays, s.Workers, s.PerWorker, "lower bound"}
		for _, e := range events {
			row = append(row, s.Bound(e), nil)
		}
		t.Add(row...)
		for j, st := range sub.strategies {
			row := []any{s.Relays, s.Workers, s.PerWorker, st.Name}
			for i, e := range events {
				m := got[k*each+j*len(events)+i]
				row = append(row, m.mean(), m.max)
				checkPlan(r, s, st, e, m)
			}
			t.Add(row...)
		}
	}
	r.Skip(slotNear, "none of the fleets has a bound that is promised")
	r.Skip(rendezNear, "in none of the fleets the workers' minimum decides")
	drawPlans(r, sub, sizes, got)
	return nil
}

// checkPlan checks that slots and rendezvous stay near the lower bound, at the sizes of the
// documented tables.
func checkPlan(r *scenario.Run, s fleet.Size, st fleet.Strategy, e fleet.Event, got moves) {
	where := fmt.Sprintf("%v, %s: %.1f connections, lower bound %.1f", s, e.Name, got.mean(), s.Bound(e))
	switch name := sizeName(s); {
	case st.Name == fleet.BySlot && e.Relays && (name == "50x1000x3" || name == "300x10000x3"):
		r.Check(slotNear, got.mean()/s.Bound(e), where)
	case st.Name == fleet.Rendezvous && s.ByWorkers():
		r.Check(rendezNear, got.mean()/s.Bound(e), where)
	}
}

// drawPlans draws the fleet 50x1000x3, or the first fleet if that size is not among sizes.
func drawPlans(r *scenario.Run, sub subject, sizes []fleet.Size, got []moves) {
	events := fleet.Events()
	at := max(0, slices.IndexFunc(sizes, func(s fleet.Size) bool { return sizeName(s) == "50x1000x3" }))
	s := sizes[at]
	p := r.Plot(scenario.Plot{
		Name: "plans", Title: fmt.Sprintf("Connections that one member moves (%v)", s),
		X: scenario.Axis{Label: "strategy"}, Y: scenario.Axis{Label: "connections moved, mean", Unit: "connections", Log: true},
	})
	for _, st := range sub.strategies {
		p.Categories = append(p.Categories, st.Name)
	}
	p.Categories = append(p.Categories, "lower bound")
	var relayLeaves []float64
	for i, e := range events {
		var values []float64
		for j := range sub.strategies {
			values = append(values, max(0.1, got[(at*len(sub.strategies)+j)*len(events)+i].mean()))
		}
		relayLeaves = values
		p.Bars(e.Name, append(values, s.Bound(e)))
	}
	p.Conclusion = fmt.Sprintf("A relay that leaves moves %.0f connections by rank and %.0f by slot or %.0f with rendezvous, which is about the lower bound of %.0f.",
		relayLeaves[0], relayLeaves[1], relayLeaves[2], s.Bound(events[3]))
}

// movedBy repeats an event and counts the moved connections. If the fleet has spare relays, an
// event without any change does not count: a spare left, or the joining relay got no slot.
func movedBy(r *scenario.Run, e fleet.Event, st fleet.Strategy, s fleet.Size) (moves, error) {
	f := fleet.New(s.Relays*st.Spares, s.Workers)
	before, err := connect(st, s, f, f)
	if err != nil {
		return moves{}, err
	}
	// The same random stream for all strategies, so that all lose the same members.
	random := r.Rand("plan")
	var out moves
	trials := r.Int("trials")
	for trial := 0; out.n < trials && trial < 100*trials; trial++ {
		after, err := connect(st, s, f, e.Change(f, random, trial))
		if err != nil {
			return moves{}, err
		}
		if n := fleet.Moved(before, after); n > 0 || st.Spares == 1 {
			out.add(n)
		}
	}
	return out, nil
}

// connect returns the graph of a fleet after one event; before is the fleet before the event.
func connect(st fleet.Strategy, s fleet.Size, before, after fleet.Fleet) (*fleet.Graph, error) {
	g := fleet.NewGraph(before)
	return g, st.Connect(g, s, after)
}
