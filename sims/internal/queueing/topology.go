package queueing

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/ring"
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

// ranges returns every client's range in a fleet of the given number of workers.
func (t Topology) ranges(workers int) ([][]Endpoint, error) {
	if t.Clients < 1 || t.Range < 1 || t.Range > t.Workers {
		return nil, fmt.Errorf("queueing: %v: there must be clients, and ranges of 1 to all workers", t)
	}
	if t.Rendezvous {
		return t.rendezvous(workers)
	}
	perWorker := t.Range * t.Clients / t.Workers
	plan, err := affinity.NewPlan(affinity.PlanConfig{
		Service:          "simulated",
		Relays:           affinity.Relays(names("relay", t.Clients)),
		Workers:          affinity.Workers(names("worker", workers)),
		RelaysPerService: t.Clients,
		Minimums:         affinity.Minimums{PeersPerWorker: max(3, perWorker), PeersPerRelay: 1},
	})
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
			out[i] = append(out[i], Endpoint{Worker: number(a.Worker), Weight: a.Weight})
		}
		if workers == t.Workers && len(out[i]) != t.Range {
			return nil, fmt.Errorf("queueing: %v: a client has %d workers; choose a range that is a multiple of workers/clients, at least 3 times, or all workers", t, len(out[i]))
		}
	}
	return out, nil
}

func (t Topology) rendezvous(workers int) ([][]Endpoint, error) {
	nodes := make([]ring.Node, workers)
	for i, name := range names("worker", workers) {
		nodes[i] = ring.Node{ID: name, Weight: 1}
	}
	all, err := ring.NewRendezvous(nodes)
	if err != nil {
		return nil, err
	}
	out := make([][]Endpoint, t.Clients)
	for i, name := range names("relay", t.Clients) {
		for _, id := range all.Top(name, t.Range) {
			out[i] = append(out[i], Endpoint{Worker: number(id), Weight: 1})
		}
	}
	return out, nil
}

// names returns the ids of n members; number is the inverse.
func names(kind string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = kind + "-" + strconv.Itoa(i)
	}
	return out
}

func number(id string) int {
	n, err := strconv.Atoi(id[strings.IndexByte(id, '-')+1:])
	if err != nil {
		panic(err) // the id is not from names
	}
	return n
}
