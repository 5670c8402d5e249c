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

// downTime is how long a restarting process is down.
const downTime = 5 * time.Second

// rollouts restarts all relays one after another, or all workers, a fiftieth at a time. The
// count includes all connections that relays open from the first restart until no more change,
// including the connections of each restarted relay or worker.
func rollouts(r *scenario.Run) error {
	type row struct {
		size   fleet.Size
		relays bool
		index  affinity.IndexSource
	}
	sizes, err := fleet.ParseSizes(r.Texts("rollout-fleets"))
	if err != nil {
		return err
	}
	var rows []row
	for _, s := range sizes {
		for _, relays := range []bool{true, false} {
			for _, index := range indexes(r) {
				rows = append(rows, row{s, relays, index})
			}
		}
	}
	ways := []struct {
		name         string
		grace, drain time.Duration
	}{
		{fmt.Sprintf("grace %v, drain %v", r.Duration("grace"), r.Duration("drain")), r.Duration("grace"), r.Duration("drain")},
		{fmt.Sprintf("no grace, drain %v", r.Duration("drain")), 0, r.Duration("drain")},
		{"no grace, no drain", 0, 0},
	}
	results := make([]float64, len(rows)*len(ways))
	if err := r.Parallel(len(results), func(i int) (err error) {
		c, w := rows[i/len(ways)], ways[i%len(ways)]
		how := rolloutPolicy(r, c.index)
		how.Grace, how.Drain = w.grace, drain(w.drain)
		results[i], err = rollout(c.size, how, c.relays, r.Rand("rollout"))
		return err
	}); err != nil {
		return err
	}
	t := r.Table(scenario.Table{
		Name: "rollouts", Title: "Opened while all restart once, ÷ connections of the fleet", Section: "peering",
		Columns: []scenario.Column{{Name: "fleet", Key: true}, {Name: "restarting", Key: true}, {Name: "index", Key: true}},
	})
	p := r.Plot(scenario.Plot{
		Name: "rollouts", Title: "Connections opened while all restart once",
		X: scenario.Axis{Label: "restarting"}, Y: scenario.Axis{Label: "opened ÷ connections of the fleet", Unit: "1"},
	})
	bars := make([][]float64, len(ways))
	for _, w := range ways {
		t.Columns = append(t.Columns, scenario.Column{Name: w.name, Digits: 2})
	}
	for i, c := range rows {
		kind := "workers"
		if c.relays {
			kind = "relays"
		}
		got := results[i*len(ways) : (i+1)*len(ways)]
		t.Add(sizeName(c.size), kind, string(c.index), got[0], got[1], got[2])
		p.Categories = append(p.Categories, fmt.Sprintf("%s of %s, %s", kind, sizeName(c.size), c.index))
		for j := range ways {
			bars[j] = append(bars[j], got[j])
		}
		r.Check(graceHolds, got[0], fmt.Sprintf("%v, %s, all %s", c.size, c.index, kind))
	}
	for j, w := range ways {
		p.Bars(w.name, bars[j])
	}
	p.Conclusion = fmt.Sprintf("With grace a rolling restart opens each connection %.2f times at most; without grace and draining, up to %.1f times.", slices.Max(bars[0]), slices.Max(bars[2]))
	return nil
}

func rollout(s fleet.Size, how fleet.RolloutPolicy, relays bool, random *rand.Rand) (float64, error) {
	m := fleet.NewMesh(s, how)
	f := fleet.New(s.Relays*spares(how.Index), s.Workers)
	v := m.NewView()
	if err := m.Begin(v, f); err != nil {
		return 0, err
	}
	steady := m.Opened
	m.Opened = 0
	members, batch := f.Workers, max(1, s.Workers/50)
	if relays {
		members, batch = f.Relays, 1
	}
	order := slices.Clone(members)
	random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	for down := range slices.Chunk(order, batch) {
		away := func(n int) bool { return slices.Contains(down, n) }
		during := fleet.Fleet{Relays: f.Relays, Workers: slices.DeleteFunc(slices.Clone(f.Workers), away)}
		if relays {
			during = fleet.Fleet{Relays: slices.DeleteFunc(slices.Clone(f.Relays), away), Workers: f.Workers}
		}
		for _, n := range down {
			if relays {
				m.Kill(n)
			} else {
				m.KillWorker(n)
			}
		}
		if err := m.All(v, during); err != nil {
			return 0, err
		}
		m.Pass(downTime)
		for _, n := range down {
			if relays {
				if err := m.Start(n); err != nil {
					return 0, err
				}
			}
		}
		if err := m.All(v, f); err != nil {
			return 0, err
		}
		m.Pass(downTime)
	}
	m.Pass(2 * max(how.Drain, time.Minute))
	return float64(m.Opened) / float64(steady), nil
}
