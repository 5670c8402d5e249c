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

// topologies are clients × workers with ranges that a fleet of the size has.
var topologies = []struct {
	name string
	queueing.Topology
}{
	{"5x20", queueing.Topology{Clients: 5, Workers: 20, Range: 20}},
	{"20x200", queueing.Topology{Clients: 20, Workers: 200, Range: 30}},
	{"100x1000", queueing.Topology{Clients: 100, Workers: 1000, Range: 30}},
}

// scenarios are the ones that are compared, then the special ones.
func scenarios() []queueing.Scenario {
	return append(queueing.Compared(), queueing.Background, queueing.Recovery, queueing.Overload)
}

// cell is one situation.
type cell struct {
	place    string
	topology queueing.Topology
	scenario queueing.Scenario
	load     float64
	seeds    int // runs that are added up
	compared bool
}

func (c *cell) String() string {
	return fmt.Sprintf("%s, %.0f %% load, %s", c.place, 100*c.load, c.scenario.Name)
}

// seedsFor make the figures of a topology steady to about a percent (the standard error of a
// p99 ratio, see the note under the table): large ones average over their many workers.
func seedsFor(t queueing.Topology) int { return max(1, min(6, 400/t.Workers)) }

// Of many workers, half of the time is enough where nothing changes: that is half a million
// requests, and their p99 is off by less than one percent.
const (
	many    = 1000
	manyEnd = selection.Instant(13 * time.Second)
)

// grid is what to run: every policy in every cell. The first policy is the omniscient one.
type grid struct {
	cells    []cell
	policies []queueing.Policy
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
			// How soon a worker is used again is up to chance in its few clients:
			// one run says little.
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

// run runs the grid and returns rows cell by cell, in the order of the policies.
func (g grid) run(r *scenario.Run) ([]row, error) {
	n := len(g.policies)
	rows := make([]row, len(g.cells)*n)
	order := make([]int, len(rows))
	for i := range order {
		order[i] = i
	}
	// The long ones first, so that no processor is left alone with one at the end.
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
				Topology: c.topology, Scenario: c.scenario, Policy: p, Load: c.load,
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
