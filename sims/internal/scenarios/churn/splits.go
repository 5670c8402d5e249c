package churn

import (
	"fmt"
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
