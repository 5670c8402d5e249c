package validation

import (
	"fmt"
	"time"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/affinity/peering"
)

// slack is the default slack of the relays.
const slack = 2

// plan returns the plan of the relays without the dead workers.
func (c Case) plan(dead map[string]bool) (*affinity.Plan, error) {
	var relays, workers []string
	for i := range c.Relays {
		relays = append(relays, relayID(i))
	}
	for i := range c.Workers {
		if id := workerID(i); !dead[id] {
			workers = append(workers, id)
		}
	}
	return affinity.NewPlan(affinity.PlanConfig{
		Service: service, Relays: affinity.Relays(relays), Workers: affinity.Workers(workers),
		RelaysPerService: c.Relays, Minimums: affinity.Minimums{PeersPerWorker: perWorker, PeersPerRelay: 1},
	})
}

// simulateDeath counts the connections of the relays, and the connections that they open after
// a worker dies. Each relay has a table of package peering.
func simulateDeath(c Case, victim int) (before, opened int, err error) {
	now := time.Unix(0, 0)
	dead := map[string]bool{}
	tables := make([]*peering.Table[string], c.Relays)
	linked := make([][]string, c.Relays)
	follow := func(p *affinity.Plan) (opened int, err error) {
		for i := range tables {
			assignments, err := p.Assignments(i)
			if err != nil {
				return 0, err
			}
			var in, near []string
			inRange := map[string]bool{}
			for _, a := range assignments {
				in = append(in, a.Worker)
				inRange[a.Worker] = true
			}
			for _, w := range linked[i] {
				if d := p.Distance(i, w); !dead[w] && !inRange[w] && d > 0 && d <= slack {
					near = append(near, w)
				}
			}
			linked[i] = append(in[:len(in):len(in)], near...)
			tables[i].Want(service, in, near, now)
			for _, w := range tables[i].Step(now).Open {
				tables[i].Opened(w, now)
				opened++
			}
		}
		return opened, nil
	}
	for i := range tables {
		if tables[i], err = peering.NewTable[string](peering.Config{MaxOpening: c.Workers}); err != nil {
			return 0, 0, fmt.Errorf("simulate connections: %w", err)
		}
	}
	for _, dies := range []bool{false, true} {
		if dies {
			dead[workerID(victim)] = true
			for i := range tables {
				tables[i].Lost(workerID(victim), now)
			}
		}
		p, err := c.plan(dead)
		if err == nil {
			before = opened
			opened, err = follow(p)
		}
		if err != nil {
			return 0, 0, fmt.Errorf("simulate connections: %w", err)
		}
	}
	return before, opened, nil
}

func relayID(i int) string  { return fmt.Sprintf("relay-%d", i) }
func workerID(i int) string { return fmt.Sprintf("worker-%d", i) }
