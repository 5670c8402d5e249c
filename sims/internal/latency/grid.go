package latency

import (
	"fmt"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/ringway/ringway/selection"
	"github.com/ringway/ringway/sims/internal/policy"
	"github.com/ringway/ringway/sims/internal/queueing"
)

// Grid is what to run: every policy in every cell. policy.Omniscient must be among them,
// for all are measured by it.
type Grid struct {
	Cells    []Cell
	Policies []queueing.Policy
}

// Cell is one situation.
type Cell struct {
	Topology queueing.Topology
	Scenario queueing.Scenario
	Load     float64
	// Seeds is how many runs are added up: 1, 2, …
	Seeds int
	// Compared cells make up the geometric means.
	Compared bool
}

func (c Cell) String() string {
	return fmt.Sprintf("%v, %.0f %%, %s", c.Topology, 100*c.Load, c.Scenario.Name)
}

// The topologies of the full grid.
var (
	Small  = queueing.Topology{Clients: 5, Workers: 20, Range: 20}
	Medium = queueing.Topology{Clients: 20, Workers: 200, Range: 30}
	Large  = queueing.Topology{Clients: 100, Workers: 1000, Range: 30}
)

// Seeds is how many runs make the figures of a topology steady to about one percent: large
// ones average over their many workers.
func Seeds(t queueing.Topology) int { return max(1, min(10, 600/t.Workers)) }

// Cells are those of one topology: latencies at 50, 70 and 90 % load, and the special ones. How
// soon a worker is used again after it recovers is up to chance in its few clients, so that one
// run says little.
func Cells(t queueing.Topology, seeds int) []Cell {
	var out []Cell
	for _, load := range []float64{0.5, 0.7, 0.9} {
		for _, s := range queueing.Compared() {
			out = append(out, Cell{t, s, load, seeds, true})
		}
		out = append(out, Cell{t, queueing.Background, load, seeds, false}, Cell{t, queueing.Recovery, load, max(seeds, 3), false})
	}
	return append(out, Cell{t, queueing.Overload, 1.1, seeds, false})
}

// LowRate are two cells where a pair of client and worker sees one request in 3 s, and three
// a second with a range that fits the rate.
func LowRate() []Cell {
	everybody := queueing.Topology{Clients: 300, Workers: 60, Range: 60}
	few := queueing.Topology{Clients: 300, Workers: 60, Range: 8}
	return []Cell{{everybody, queueing.LowRate, 0.8, 2, false}, {few, queueing.LowRate, 0.8, 2, false}}
}

// Ours is the name of the policy that relays use.
const Ours = "ringway"

// Policies are ours and what it is compared with.
func Policies() []queueing.Policy {
	return []queueing.Policy{
		policy.Omniscient,
		policy.Ringway(Ours, selection.DefaultConfig()),
		policy.PeakEWMA,
		policy.Prequal(0.6),
		policy.Prequal(0.84),
		policy.EWMA,
		policy.LeastRequest,
		policy.Random,
		policy.RoundRobin,
	}
}

// Runs is how many runs the grid is.
func (g Grid) Runs() int {
	n := 0
	for _, c := range g.Cells {
		n += c.Seeds * len(g.Policies)
	}
	return n
}

// Run runs the grid on all processors. ran, if not nil, is called after each run, from
// several goroutines; they have all ended when Run returns.
func (g Grid) Run(ran func()) ([]Row, error) {
	reference := slices.IndexFunc(g.Policies, func(p queueing.Policy) bool { return p.Name == policy.Omniscient.Name })
	if reference < 0 {
		return nil, fmt.Errorf("latency: the policies must include %q: the others are measured by it", policy.Omniscient.Name)
	}
	// Every row has a place of its own, so that the order in which runs end does not matter.
	results := make([]queueing.Result, len(g.Cells)*len(g.Policies))
	rows := make([]Row, len(results))
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range rows {
		cell, p := g.Cells[i/len(g.Policies)], g.Policies[i%len(g.Policies)]
		group.Go(func() error {
			for seed := range cell.Seeds {
				r, err := queueing.Run(queueing.Config{
					Topology: cell.Topology, Scenario: cell.Scenario, Policy: p, Load: cell.Load, Seed: uint64(seed) + 1,
				})
				if err != nil {
					return err
				}
				results[i].Add(r)
				if ran != nil {
					ran()
				}
			}
			rows[i] = newRow(cell, p.Name, &results[i])
			results[i] = queueing.Result{} // the histogram is large
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for i := range rows {
		rows[i].compare(&rows[i/len(g.Policies)*len(g.Policies)+reference])
	}
	return rows, nil
}
