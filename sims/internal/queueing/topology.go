package queueing

import (
	"fmt"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/ring"
	"github.com/ringway/ringway/sims/internal/fleet"
)

// Topology is the number of clients and workers, and the number of workers in each client's
// range. With balanced ranges Range·Clients/Workers must be a whole number of at least 3, or
// Range must be all workers.
type Topology struct {
	Clients int `json:"clients"`
	Workers int `json:"workers"`
	Range   int `json:"range"`
	// Rendezvous gives every client its Range best workers by rendezvous hashing, instead
	// of the balanced ranges of package affinity. A few workers are then in no range.
	Rendezvous bool `json:"rendezvous,omitempty"`
}

func (t Topology) String() string {
	text := fmt.Sprintf("%d × %d, range %d", t.Clients, t.Workers, t.Range)
	if t.Rendezvous {
		text += ", rendezvous"
	}
	return text
}

// Capacity returns how many requests per second all workers at normal speed can serve.
func (t Topology) Capacity() float64 {
	return float64(t.Workers*Slots) / MeanService.Seconds()
}

// Service is the service name in the plans, on which ranges depend.
const Service = "simulated"

// Plan returns the plan of a fleet of the given number of workers, with balanced ranges.
func (t Topology) Plan(workers int) (*affinity.Plan, error) {
	f, m := fleet.New(t.Clients, workers), max(affinity.LeastPeersPerWorker, t.Range*t.Clients/t.Workers)
	return affinity.NewPlan(affinity.PlanConfig{
		Service:          Service,
		Relays:           affinity.Relays(f.RelayIDs()),
		Workers:          affinity.Workers(f.WorkerIDs()),
		RelaysPerService: max(t.Clients, m),
		Minimums:         affinity.Minimums{PeersPerWorker: m, PeersPerRelay: 1},
	})
}

// ranges returns every client's range in a fleet of the given number of workers.
func (t Topology) ranges(workers int) ([][]Endpoint, error) {
	if t.Clients < 1 || t.Range < 1 || t.Range > t.Workers {
		return nil, fmt.Errorf("queueing: %v: there must be clients, and ranges of 1 to all workers", t)
	}
	if t.Rendezvous {
		return t.rendezvous(workers)
	}
	plan, err := t.Plan(workers)
	if err != nil {
		return nil, err
	}
	out := make([][]Endpoint, t.Clients)
	for i := range out {
		assignments, err := plan.Assignments(i)
		if err != nil {
			return nil, err
		}
		for _, a := range assignments {
			out[i] = append(out[i], Endpoint{Worker: fleet.Number(a.Worker), Weight: a.Weight})
		}
		if workers == t.Workers && len(out[i]) != t.Range {
			return nil, fmt.Errorf("queueing: %v: a client has %d workers; choose a range that is a multiple of workers/clients, at least 3 times, or all workers", t, len(out[i]))
		}
	}
	return out, nil
}

func (t Topology) rendezvous(workers int) ([][]Endpoint, error) {
	f := fleet.New(t.Clients, workers)
	nodes := make([]ring.Node, workers)
	for i, name := range f.WorkerIDs() {
		nodes[i] = ring.Node{ID: name, Weight: 1}
	}
	all, err := ring.NewRendezvous(nodes)
	if err != nil {
		return nil, err
	}
	out := make([][]Endpoint, t.Clients)
	for i, name := range f.RelayIDs() {
		for _, id := range all.Top(name, t.Range) {
			out[i] = append(out[i], Endpoint{Worker: fleet.Number(id), Weight: 1})
		}
	}
	return out, nil
}
