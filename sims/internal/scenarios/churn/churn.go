// Package churn counts the connections that move when a worker or a relay joins or leaves.
//
// In the plans, the scenario counts the moved connections for every strategy, Ringway's and
// those of other systems, next to the lower bound. With real tables of package peering, the
// scenario counts the opened connections: for pairs that leave and join with slack, for
// rolling restarts with grace, and while only half of the relays know of a change.
//
//	churn.go     settings and promises; one member joins or leaves, in the plan
//	defaults.go  changes at the defaults of a relay, growth, and relays that share workers
//	rollouts.go  every relay or worker restarts once, with grace
//	splits.go    many pairs of a leave and a join, with slack; half of the relays know of a change
package churn

import (
	"fmt"
	"slices"
	"time"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/sims/internal/fleet"
	"github.com/ringway/ringway/sims/internal/scenario"
)

// The promises, by name.
const (
	slotNear      = "connections that a relay event moves by slot ÷ lower bound"
	rendezNear    = "connections that an event moves with rendezvous ÷ lower bound"
	slackSaves    = "connections opened for a pair of workers at 50x1000x3, by slot"
	graceHolds    = "connections opened by a rolling restart ÷ connections of the fleet"
	relaysUsual   = "connections opened when a relay leaves, or another joins, at the defaults ÷ its own"
	replacedUsual = "connections opened when a relay is replaced at once, at the defaults ÷ its own"
	workersUsual  = "connections opened when a worker leaves and another joins, at the defaults ÷ its own"
	splitHolds    = "relays that a worker lacks, beyond the one that left, while half of the relays know"
)

// subject is the code under test; tests replace it with broken code.
type subject struct {
	strategies []fleet.Strategy
	index      affinity.IndexSource // at the defaults
}

// New returns the scenario.
func New() scenario.Scenario { return with(subject{fleet.Strategies(), affinity.IndexSlot}) }

func with(sub subject) scenario.Scenario {
	return scenario.Scenario{
		Name: "churn",
		Asks: "How many connections move when a worker or a relay comes or goes, and what do slack, grace and draining spare?",
		Settings: []scenario.Setting{
			{Name: "fleets", Help: "fleets for the plans, relays x workers x m", Default: fleet.Sizes, Quick: fleet.Sizes[:2]},
			{Name: "trials", Help: "how often each event happens to a plan, and in a split view", Default: 50, Min: 5, Max: 1000},
			{Name: "strategy", Help: "the strategy under peering", Default: string(affinity.Projection), OneOf: []string{string(affinity.Projection), string(affinity.Rendezvous)}},
			{Name: "index", Help: "index sources under peering", Default: []string{string(affinity.IndexRank), string(affinity.IndexSlot)}, OneOf: []string{string(affinity.IndexRank), string(affinity.IndexSlot)}},
			{Name: "slack", Help: "places outside the range at which a connection is kept, of the judged case", Default: 2, Min: 0, Max: 100},
			{Name: "slacks", Help: "the slacks of the table", Default: []int{0, 1, 2, 4}, Quick: []int{0, 2}, Min: 0, Max: 100},
			{Name: "grace", Help: "how long a member that vanished keeps its place", Default: 15 * time.Second, Min: time.Duration(0), Max: 10 * time.Minute},
			{Name: "drain", Help: "how long a connection that is not needed stays; 0s closes it immediately", Default: 30 * time.Second, Min: time.Duration(0), Max: 10 * time.Minute},
			{Name: "pairs", Help: "pairs of workers that leave and join; the figures are noisy below some hundred", Default: 400, Quick: 60, Min: 5, Max: 10000},
			{Name: "rollout-fleets", Help: "fleets of the rolling restarts", Default: []string{"10x100x3", "50x1000x3"}},
			{Name: "split-fleets", Help: "fleets of the split views", Default: []string{"7x1000x3", "50x1000x3", "101x997x3"}, Quick: []string{"7x100x3", "50x500x3"}},
			{Name: "default-fleets", Help: "fleets at the defaults, where as many relays serve as the service needs", Default: []string{"50x1000x3", "300x10000x3"}, Quick: []string{"50x1000x3"}},
			{Name: "growth-steps", Help: "steps in which a service grows tenfold, at the defaults", Default: 288, Quick: 48, Min: 1, Max: 2000},
			{Name: "large", Help: "also a fleet of 300x10000x3 under peering", Default: true, Quick: false},
		},
		Promises: []scenario.Promise{
			{Name: slotNear, Relation: scenario.AtMost, Bound: 1.3, Why: "50x1000x3 and 300x10000x3: a relay that is replaced disturbs its own range, and chains of slots are short"},
			{Name: rendezNear, Relation: scenario.AtMost, Bound: 1.1, Why: "a member moves its own connections and no others"},
			{Name: slackSaves, Relation: scenario.AtMost, Bound: 12, Why: "28 without slack; ten runs of 400 pairs gave 8.5 to 10.0, and 50 pairs up to 10.9"},
			{Name: graceHolds, Relation: scenario.AtMost, Bound: 1.1, Why: "each process that restarts connects once; no other connection moves"},
			{Name: relaysUsual, Relation: scenario.AtMost, Bound: 2.2, Why: "another relay takes over its slot and its range, and chains of slots are short"},
			{Name: replacedUsual, Relation: scenario.AtMost, Bound: 4.4, Why: "it is both, a relay that joins and one that leaves after its grace"},
			{Name: workersUsual, Relation: scenario.AtMost, Bound: 10, Why: "50x1000x3 and 300x10000x3: the slack keeps most connections of ranges that shift, in long ranges more places, and by rendezvous none shifts"},
			{Name: splitHolds, Relation: scenario.AtMost, Bound: 0, Unit: "relays", Why: "connections are opened before others are closed"},
		},
		Takes: 65 * time.Second, TakesQuick: 8 * time.Second,
		Run: func(r *scenario.Run) error {
			sizes, err := fleet.ParseSizes(r.Texts("fleets"))
			if err != nil {
				return err
			}
			if err := plans(r, sub, sizes); err != nil {
				return err
			}
			if err := atDefaults(r, sub); err != nil {
				return err
			}
			for _, part := range []func(*scenario.Run) error{exchanges, rollouts, splits} {
				if err := part(r); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// size returns the size of a fleet for the tables about peering.
func size(relays, workers, m int) fleet.Size {
	return fleet.Size{Relays: relays, Workers: workers, PerWorker: m, PerRelay: affinity.DefaultMinimums.PeersPerRelay}
}

// sizeName returns a size in the syntax of settings.
func sizeName(s fleet.Size) string { return fmt.Sprintf("%dx%dx%d", s.Relays, s.Workers, s.PerWorker) }

// indexes returns the index sources of a run; rendezvous has no index, so one is enough.
func indexes(r *scenario.Run) []affinity.IndexSource {
	var out []affinity.IndexSource
	for _, text := range r.Texts("index") {
		out = append(out, affinity.IndexSource(text))
	}
	if r.Text("strategy") == string(affinity.Rendezvous) {
		return out[:1]
	}
	return out
}

// rolloutPolicy returns the settings of a run with an index source, without slack and grace.
func rolloutPolicy(r *scenario.Run, index affinity.IndexSource) fleet.RolloutPolicy {
	return fleet.RolloutPolicy{Strategy: affinity.Strategy(r.Text("strategy")), Index: index, Drain: drain(r.Duration("drain"))}
}

// drain converts a drain delay for package peering, in which zero means the default and a
// negative value means no delay.
func drain(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
}

// spares returns the number of relays of the fleet per relay that serves.
func spares(index affinity.IndexSource) int {
	if index == affinity.IndexSlot {
		return 2
	}
	return 1
}

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
