package latency

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/ringway/ringway/selection"
	"github.com/ringway/ringway/sims/internal/policy"
	"github.com/ringway/ringway/sims/internal/queueing"
	"github.com/ringway/ringway/sims/internal/scenario"
)

// topologies lists clients × workers, with the ranges of a fleet of that size.
var topologies = []struct {
	name string
	queueing.Topology
}{
	{"5x20", queueing.Topology{Clients: 5, Workers: 20, Range: 20}},
	{"20x200", queueing.Topology{Clients: 20, Workers: 200, Range: 30}},
	{"100x1000", queueing.Topology{Clients: 100, Workers: 1000, Range: 30}},
}

// scenarios returns the compared scenarios, followed by the special ones.
func scenarios() []queueing.Scenario {
	return append(queueing.Compared(), queueing.Background, queueing.Recovery, queueing.Overload)
}

// cell is one combination of topology, load and scenario.
type cell struct {
	place    string
	topology queueing.Topology
	scenario queueing.Scenario
	load     float64
	seeds    int // number of runs, each with its own seed
	compared bool
}

func (c *cell) String() string {
	return fmt.Sprintf("%s, %.0f %% load, %s", c.place, 100*c.load, c.scenario.Name)
}

// seedsFor returns the number of seeds for a standard error of the p99 ratio of about one
// percent (see the note under the table). Large topologies need fewer seeds because they
// average over many workers.
func seedsFor(t queueing.Topology) int { return max(1, min(6, 400/t.Workers)) }

// With many workers and no changes, half of the time is enough: half a million requests give a
// p99 with an error below one percent.
const (
	many    = 1000
	manyEnd = selection.Instant(13 * time.Second)
)

// grid lists the runs: every policy in every cell. The first policy is the omniscient one.
type grid struct {
	cells    []cell
	policies []queueing.Policy
	measured queueing.Measured
}

func gridOf(r *scenario.Run) grid {
	var g grid
	kinds := r.Texts("scenarios")
	for _, t := range topologies {
		if !slices.Contains(r.Texts("topologies"), t.name) {
			continue
		}
		t.Rendezvous = r.Text("ranges") == "rendezvous"
		seeds := r.Int("seeds")
		if seeds == 0 {
			seeds = seedsFor(t.Topology)
		}
		add := func(s queueing.Scenario, load float64, seeds int) {
			if !slices.Contains(kinds, s.Name) {
				return
			}
			if steady := len(s.Turns) == 0 && s.Join == 0; steady && t.Workers >= many {
				s.End = manyEnd
			}
			compared := slices.ContainsFunc(queueing.Compared(), func(c queueing.Scenario) bool { return c.Name == s.Name })
			g.cells = append(g.cells, cell{t.name, t.Topology, s, load, seeds, compared})
		}
		for _, load := range r.Floats("loads") {
			for _, s := range queueing.Compared() {
				add(s, load, seeds)
			}
			add(queueing.Background, load, seeds)
			// A worker has few clients, so the time until it is used again is random: one
			// run is not enough.
			add(queueing.Recovery, load, max(seeds, 3))
		}
		add(queueing.Overload, 1.1, seeds)
	}
	wanted := append(r.Texts("policies"), r.Text("judged"), policy.Omniscient.Name)
	for _, p := range policies(configOf(r)) {
		if slices.Contains(wanted, p.Name) {
			g.policies = append(g.policies, p)
		}
	}
	return g
}

// run runs the grid and returns the rows by cell, in the order of the policies.
func (g grid) run(r *scenario.Run) ([]row, error) {
	n := len(g.policies)
	rows := make([]row, len(g.cells)*n)
	order := make([]int, len(rows))
	for i := range order {
		order[i] = i
	}
	// Long runs start first, so that no single long run is left at the end.
	effort := func(i int) float64 {
		c := &g.cells[i/n]
		return float64(c.topology.Workers*c.seeds) * c.load
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(effort(b), effort(a)) })
	err := r.Parallel(len(order), func(k int) error {
		i := order[k]
		c, p := &g.cells[i/n], g.policies[i%n]
		var all queueing.Result
		var p99 []float64
		for seed := range c.seeds {
			one, err := queueing.Run(queueing.Config{
				Topology: c.topology, Scenario: c.scenario, Policy: p, Load: c.load, Measured: g.measured,
				Seed: (r.Seed()-1)*1000 + uint64(seed) + 1,
			})
			if err != nil {
				return err
			}
			p99 = append(p99, milliseconds(&one, 99))
			all.Add(one)
		}
		rows[i] = newRow(c, p.Name, &all)
		rows[i].p99Of = p99
		return r.Context().Err()
	})
	for i := range rows {
		rows[i].compare(&rows[i/n*n])
	}
	return rows, err
}

// judge checks the rows of one policy against the promises.
func judge(r *scenario.Run, rows []row, judged string) {
	compared := func(row *row) bool { return row.compared && row.policy == judged }
	cells := 0
	peak := map[string]*row{}
	for i := range rows {
		if compared(&rows[i]) {
			cells++
		}
		if rows[i].policy == policy.PeakEWMA.Name {
			peak[rows[i].cell.String()] = &rows[i]
		}
	}
	for _, mean := range []struct {
		promise string
		of      func(*row) float64
	}{
		{typical, func(row *row) float64 { return row.p50Ratio }},
		{nearBest, func(row *row) float64 { return row.p99Ratio }},
		{tail, func(row *row) float64 { return row.p999Ratio }},
	} {
		if cells > 0 {
			r.Check(mean.promise, geometricMean(rows, compared, mean.of), fmt.Sprintf("%d cells", cells))
		}
	}
	for i := range rows {
		row := &rows[i]
		if row.policy != judged {
			continue
		}
		where := row.cell.String()
		if other, ok := peak[where]; ok && row.compared && judged != policy.PeakEWMA.Name {
			r.Check(notWorse, row.p99/other.p99, where)
			r.Check(tailToo, row.p999/other.p999, where)
		}
		switch row.scenario.Name {
		case queueing.FailFast.Name:
			r.Check(failFast, row.victimMax, where)
		case queueing.Background.Name:
			r.Check(background, float64(row.evictions), where)
		case queueing.Recovery.Name:
			r.Check(recovered, row.victimMean, where)
		case queueing.Overload.Name:
			r.Check(overloaded, row.excessErrors, where)
		}
	}
	for _, name := range []string{typical, nearBest, tail, notWorse, tailToo, failFast, background, recovered, overloaded, through, narrows, evenRendezvous, evenProjection, evenZones} {
		r.Skip(name, "its cells are not part of this run")
	}
}
