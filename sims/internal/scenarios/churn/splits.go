package churn

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/sims/internal/fleet"
	"github.com/ringway/ringway/sims/internal/scenario"
)

// splits measures the coverage while a random half of the relays knows of a change and the
// other half learns of the change ten seconds later. Grace and slack are off because they
// would hide the change.
func splits(r *scenario.Run) error {
	type row struct {
		size  fleet.Size
		index affinity.IndexSource
		drain time.Duration
	}
	sizes, err := fleet.ParseSizes(r.Texts("split-fleets"))
	if err != nil {
		return err
	}
	var rows []row
	for _, s := range sizes {
		for _, index := range indexes(r) {
			rows = append(rows, row{s, index, 0})
			if d := r.Duration("drain"); d > 0 {
				rows = append(rows, row{s, index, d})
			}
		}
	}
	events := fleet.Events()
	type outcome struct{ lowest, short int }
	results := make([]outcome, len(rows)*len(events))
	if err := r.Parallel(len(results), func(i int) (err error) {
		c, e := rows[i/len(events)], events[i%len(events)]
		how := rolloutPolicy(r, c.index)
		how.Drain = drain(c.drain)
		results[i].lowest, results[i].short, err = split(r, c.size, how, e)
		return err
	}); err != nil {
		return err
	}
	t := r.Table(scenario.Table{
		Name: "splits", Title: "While half of the relays know of a change: fewest relays of a worker, most workers below m", Section: "peering",
		Columns: []scenario.Column{{Name: "fleet", Key: true}, {Name: "index", Key: true}, {Name: "closing", Key: true}},
	})
	for _, e := range events {
		t.Columns = append(t.Columns, scenario.Column{Name: e.Name}, scenario.Column{Name: "below m"})
	}
	for i, c := range rows {
		closing := "immediately"
		if c.drain > 0 {
			closing = fmt.Sprintf("after %v", c.drain)
		}
		line := []any{sizeName(c.size), string(c.index), closing}
		for j, e := range events {
			got := results[i*len(events)+j]
			line = append(line, got.lowest, got.short)
			least := c.size.PerWorker - 1
			if e.Joins {
				least = c.size.PerWorker
			}
			if c.drain == r.Duration("drain") { // the rows without drain are for comparison only
				r.Check(splitHolds, float64(max(0, least-got.lowest)), fmt.Sprintf("%v, %s, %s", c.size, c.index, e.Name))
			}
		}
		t.Add(line...)
	}
	return nil
}

// split returns the worst result of all trials, for workers that all relays know.
func split(r *scenario.Run, s fleet.Size, how fleet.RolloutPolicy, e fleet.Event) (lowest, short int, err error) {
	f := fleet.New(s.Relays*spares(how.Index), s.Workers)
	random := r.Rand("split")
	lowest = s.Relays
	for trial := range r.Int("trials") {
		m := fleet.NewMesh(s, how)
		if err := m.Begin(m.NewView(), f); err != nil {
			return 0, 0, err
		}
		after := e.Change(f, random, trial)
		var half, rest []int
		for _, relay := range after.Relays {
			if !m.Runs(relay) { // a relay that joins knows of the change
				if err := m.Start(relay); err != nil {
					return 0, 0, err
				}
				half = append(half, relay)
			} else if random.IntN(2) == 0 {
				half = append(half, relay)
			} else {
				rest = append(rest, relay)
			}
		}
		for _, relay := range f.Relays {
			if !slices.Contains(after.Relays, relay) {
				m.Kill(relay)
			}
		}
		known := slices.DeleteFunc(slices.Clone(after.Workers), func(w int) bool { return w >= len(f.Workers) })
		v := m.NewView()
		if err := m.Learn(v, after); err != nil {
			return 0, 0, err
		}
		look := func() {
			l, n := m.Coverage(known)
			lowest, short = min(lowest, l), max(short, n)
		}
		if err := m.Follow(v, half); err != nil {
			return 0, 0, err
		}
		look()
		m.Pass(10 * time.Second)
		if err := m.Follow(v, rest); err != nil {
			return 0, 0, err
		}
		look()
		m.Pass(time.Minute)
		look()
	}
	return lowest, short, nil
}

// exchanges measures pairs of events, a minute apart: one member leaves permanently, another
// one joins. Runs are long because short runs are noisy: at (50,1000,3) with slack 2, ten
// seeds of 400 pairs of workers gave 8.5 to 10.0 connections per pair, 9.3 on average, and 50
// pairs up to 10.9.
func exchanges(r *scenario.Run) error {
	slacks := r.Ints("slacks")
	if !slices.Contains(slacks, r.Int("slack")) {
		slacks = append(slacks, r.Int("slack"))
		slices.Sort(slacks)
	}
	type row struct {
		size        fleet.Size
		relays      bool
		index       affinity.IndexSource
		warm, pairs int
	}
	pairs := r.Int("pairs")
	var rows []row
	for _, index := range indexes(r) {
		rows = append(rows, row{size(50, 1000, 3), false, index, pairs / 8, pairs}, row{size(50, 1000, 3), true, index, pairs / 60, max(3, pairs/20)})
		if r.Bool("large") {
			rows = append(rows, row{size(300, 10000, 3), false, index, pairs / 20, pairs / 20}, row{size(300, 10000, 3), true, index, 1, max(3, pairs/80)})
		}
	}
	type outcome struct{ opened, spare float64 }
	results := make([]outcome, len(rows)*len(slacks))
	if err := r.Parallel(len(results), func(i int) (err error) {
		c := rows[i/len(slacks)]
		how := rolloutPolicy(r, c.index)
		how.Slack = slacks[i%len(slacks)]
		x := exchange{size: c.size, how: how, relays: c.relays, warm: c.warm, pairs: c.pairs, random: r.Rand("exchange")}
		results[i].opened, results[i].spare, err = x.run()
		return err
	}); err != nil {
		return err
	}
	t := r.Table(scenario.Table{
		Name: "exchanges", Title: "Opened when one leaves for good and another joins", Section: "peering",
		Columns: []scenario.Column{
			{Name: "fleet", Key: true}, {Name: "pair of", Key: true}, {Name: "index", Key: true}, {Name: "slack", Key: true},
			{Name: "opened", Digits: 1}, {Name: "held within slack", Unit: "%", Digits: 1}, {Name: "lower bound", Digits: 1},
		},
	})
	p := r.Plot(scenario.Plot{
		Name: "slack", Title: "Connections opened for a pair of workers that leave and join",
		X: scenario.Axis{Label: "slack", Unit: "places"}, Y: scenario.Axis{Label: "connections opened", Unit: "connections"},
	})
	var first, last outcome
	for i, c := range rows {
		kind, bound := "workers", c.size.WorkerBound()
		if c.relays {
			kind, bound = "relays", c.size.RelayBound()
		}
		var line *scenario.Series
		if !c.relays {
			line = p.Line(fmt.Sprintf("%s, %s", sizeName(c.size), c.index))
		}
		for j, slack := range slacks {
			got := results[i*len(slacks)+j]
			t.Add(sizeName(c.size), kind, string(c.index), slack, got.opened, 100*got.spare, bound)
			if line != nil {
				line.At(float64(slack), got.opened)
			}
			if i == 0 && j == 0 {
				first = got
			}
			if i == 0 && slack == r.Int("slack") {
				last = got
			}
			if slack == r.Int("slack") && !c.relays && c.index == affinity.IndexSlot && c.size.Relays == 50 {
				r.Check(slackSaves, got.opened, fmt.Sprintf("slack %d", slack))
			}
		}
	}
	r.Skip(slackSaves, "nothing is indexed by slot")
	p.Conclusion = fmt.Sprintf("A slack of %d places spares %.0f %% of the openings, for %.1f %% more connections.", r.Int("slack"), 100*(1-last.opened/first.opened), 100*last.spare)
	return nil
}

// exchange is a long run of pairs.
type exchange struct {
	size        fleet.Size
	how         fleet.RolloutPolicy
	relays      bool // whether relays leave and join, instead of workers
	warm, pairs int  // number of pairs before counting, and of counted pairs
	random      *rand.Rand
}

// run returns the connections opened per pair and the share of additional connections held
// because of slack. With slots, the leaving relay is one that serves; the joining relay may
// get no slot.
func (x exchange) run() (opened, spare float64, err error) {
	m := fleet.NewMesh(x.size, x.how)
	relays := x.size.Relays * spares(x.how.Index)
	f := fleet.New(relays, x.size.Workers)
	v := m.NewView()
	if err := m.Begin(v, f); err != nil {
		return 0, 0, err
	}
	next, held := max(len(f.Relays), len(f.Workers)), 0
	for pair := range x.warm + x.pairs {
		if pair == x.warm {
			m.Opened, held = 0, 0
		}
		if x.relays {
			gone := v.Affine()[x.random.IntN(x.size.Relays)]
			f.Relays = fleet.Without(f.Relays, slices.Index(f.Relays, gone))
			m.Kill(gone)
		} else {
			i := x.random.IntN(len(f.Workers))
			m.KillWorker(f.Workers[i])
			f.Workers = fleet.Without(f.Workers, i)
		}
		for range 2 {
			if err := m.All(v, f); err != nil {
				return 0, 0, err
			}
			m.Pass(time.Minute)
			held += m.Connections() - x.size.Minimum()
			if len(f.Workers) < x.size.Workers {
				held += x.size.PerWorker
				f.Workers = fleet.With(f.Workers, next)
			} else if len(f.Relays) < relays {
				f.Relays = fleet.With(f.Relays, next)
				if err := m.Start(next); err != nil {
					return 0, 0, err
				}
			}
		}
		next++
	}
	return float64(m.Opened) / float64(x.pairs), float64(held) / float64(2*x.pairs*x.size.Minimum()), nil
}
