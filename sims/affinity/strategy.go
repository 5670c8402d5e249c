package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/ringway/ringway/affinity"
)

// strategy is one way to decide who connects to whom. Relays know the same members.
type strategy struct {
	name string
	ours bool
	// spares says how many relays the fleet has for each one that serves: with slots, a
	// relay that leaves is replaced.
	spares  int
	connect func(g *graph, s size, f fleet) error
}

var strategies = []strategy{
	{"projection, rank", true, 1, plan(affinity.PlanConfig{IndexSource: affinity.IndexRank})},
	{"projection, slot", true, 2, plan(affinity.PlanConfig{IndexSource: affinity.IndexSlot})},
	{"rendezvous", true, 1, plan(affinity.PlanConfig{Strategy: affinity.Rendezvous})},
	{"Hyperbahn, description", false, 1, hyperbahn(describedRange)},
	{"Hyperbahn, production", false, 1, hyperbahn(productionRange)},
	{"Finagle, same coverage", false, 1, finagle(0)},
	{"Finagle, aperture 12", false, 1, finagle(12)},
	{"SRE book", false, 1, sreBook},
	{"random (A68)", false, 1, random},
}

// plan asks package affinity. With spares, as many relays as the size says serve;
// otherwise all.
func plan(cfg affinity.PlanConfig) func(*graph, size, fleet) error {
	return func(g *graph, s size, f fleet) error {
		cfg := cfg
		cfg.Service = "bench"
		cfg.Relays = affinity.Relays(ids(f.relays, relayID))
		cfg.Workers = affinity.Workers(ids(f.workers, workerID))
		cfg.Minimums = affinity.Minimums{PeersPerWorker: s.perWorker, PeersPerRelay: perRelay}
		cfg.RelaysPerService = len(f.relays)
		if cfg.IndexSource == affinity.IndexSlot {
			cfg.RelaysPerService = s.relays
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
				g.connect(r, number(a.Worker), a.Weight)
			}
		}
		return nil
	}
}

// number undoes relayID and workerID.
func number(id string) int {
	n, err := strconv.Atoi(id[strings.IndexByte(id, '-')+1:])
	if err != nil {
		panic(err) // an id that this program did not make
	}
	return n
}
