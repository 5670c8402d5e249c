package fleet

import (
	"fmt"
	"slices"

	"github.com/ringway/ringway/affinity"
)

// Strategy is one way to decide who connects to whom. Relays know the same members.
type Strategy struct {
	Name string
	Ours bool
	// Exact strategies of ours give every relay the same number of workers, but for one.
	Exact bool
	// Spares says how many relays the fleet has for each one that serves: with slots, a
	// relay that leaves is replaced.
	Spares  int
	Connect func(g *Graph, s Size, f Fleet) error
}

// The names of our strategies.
const (
	ByRank     = "projection, rank"
	BySlot     = "projection, slot"
	Rendezvous = "rendezvous"
)

// Strategies are ours and what they are compared with.
func Strategies() []Strategy {
	return []Strategy{
		{ByRank, true, true, 1, Plan(affinity.PlanConfig{IndexSource: affinity.IndexRank})},
		{BySlot, true, true, 2, Plan(affinity.PlanConfig{IndexSource: affinity.IndexSlot})},
		{Rendezvous, true, false, 1, Plan(affinity.PlanConfig{Strategy: affinity.Rendezvous})},
		{"Hyperbahn, description", false, false, 1, hyperbahn(describedRange)},
		{"Hyperbahn, production", false, false, 1, hyperbahn(productionRange)},
		{"Finagle, same coverage", false, false, 1, finagle(0)},
		{"Finagle, aperture 12", false, false, 1, finagle(12)},
		{"SRE book", false, false, 1, sreBook},
		{"random (A68)", false, false, 1, random},
	}
}

// Ours are the strategies of package affinity.
func Ours() []Strategy {
	return slices.DeleteFunc(Strategies(), func(s Strategy) bool { return !s.Ours })
}

// Plan asks package affinity. With slots, as many relays as the size says serve; otherwise
// all of the fleet.
func Plan(cfg affinity.PlanConfig) func(*Graph, Size, Fleet) error {
	return func(g *Graph, s Size, f Fleet) error {
		cfg := cfg
		cfg.Service = "bench"
		cfg.Relays = affinity.Relays(ids(f.Relays, RelayID))
		cfg.Workers = affinity.Workers(ids(f.Workers, WorkerID))
		cfg.Minimums = affinity.Minimums{PeersPerWorker: s.PerWorker, PeersPerRelay: s.PerRelay}
		cfg.RelaysPerService = len(f.Relays)
		if cfg.IndexSource == affinity.IndexSlot {
			cfg.RelaysPerService = s.Relays
		}
		p, err := affinity.NewPlan(cfg)
		if err != nil {
			return err
		}
		if p.Fallback() != "" {
			return fmt.Errorf("%v: %s", s, p.Fallback())
		}
		var assignments []affinity.Assignment
		for i, relay := range p.Affine() {
			if assignments, err = p.AppendAssignments(assignments[:0], i); err != nil {
				return err
			}
			r := number(relay)
			for _, a := range assignments {
				g.Connect(r, number(a.Worker), a.Weight)
			}
		}
		return nil
	}
}
