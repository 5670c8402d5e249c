// Package balance measures how evenly a ring of virtual nodes distributes sessions, and the
// effect of comparing K endpoints.
//
// The source of the strategy slots, Rivet's envoy load balancer, documents a table of the
// largest share for V virtual nodes and a formula, 1 + ln(N)/V. Both are too optimistic:
// Rivet's test keeps its bound only because the test places the nodes evenly. This scenario
// uses the real hashes as positions, and picks of the real strategy.
//
//	rings.go    one sample: shares of rings of V × N, next to the table and the formula
//	choices.go  K = 1, 2, 3 with counted loads: warm, cold and with one full endpoint
package balance

import (
	"time"

	"github.com/ringway/ringway/internal/strategy"
	"github.com/ringway/ringway/sims/internal/scenario"
)

// The promises, by name.
const (
	asKnown = "largest share of a ring, off what many rings gave"
	warm    = "load of the fullest endpoint ÷ mean, loads counted"
	cold    = "a cold range: slots of the fullest endpoint above the mean"
	full    = "share of the picks that an endpoint with 50 slots taken gets"
)

// subject is the code under test; tests replace it with broken code.
type subject struct {
	// largest returns the largest share of a ring of n endpoints with v positions each,
	// divided by the mean.
	largest func(v, n int, names string) (float64, error)
}

// New returns the scenario.
func New() scenario.Scenario { return with(subject{largest: largestShare}) }

func with(sub subject) scenario.Scenario {
	return scenario.Scenario{
		Name: "balance",
		Asks: "How even are the shares of a ring of virtual nodes, and what does comparing K endpoints add?",
		Settings: []scenario.Setting{
			{Name: "vnodes", Help: "places of an endpoint on the ring (V), of the judged case", Unit: "places", Default: strategy.DefaultVirtualNodes, Min: 1, Max: strategy.MaxVirtualNodes},
			{Name: "samples", Help: "endpoints that are compared (K), of the judged case", Unit: "endpoints", Default: 2, Min: 1, Max: 8},
			{Name: "jitter", Help: "the most that is added to a load by chance, of the judged case", Unit: "slots", Default: 4, Min: 0, Max: 64},
			{Name: "endpoints", Help: "endpoints of the judged case", Unit: "endpoints", Default: 100, Min: 10, Max: 5000},
			{Name: "ring-vnodes", Help: "the V of the table of rings", Default: []int{1, 4, 8, 16, 32, 64}, Min: 1, Max: strategy.MaxVirtualNodes},
			{Name: "ring-endpoints", Help: "the N of the table of rings", Default: []int{10, 100, 1000}, Quick: []int{10, 100}, Min: 2, Max: 10000},
			{Name: "rings", Help: "rings of each kind, a quarter of them where N is 1000 or more", Default: 40, Quick: 16, Min: 4, Max: 1000},
			{Name: "trials", Help: "ranges that are filled from cold", Default: 40, Quick: 10, Min: 1, Max: 1000},
		},
		Promises: []scenario.Promise{
			{Name: asKnown, Relation: scenario.AtMost, Bound: 0.15, Why: "in parts of it, V ≥ 4; the figures of 40 rings each are in the table"},
			{Name: warm, Relation: scenario.AtMost, Bound: 1.1, Why: "two choices even out what a ring does not, at every V"},
			{Name: cold, Relation: scenario.AtMost, Bound: 4, Unit: "slots", Why: "the source promises 2 for two choices, which one range in hundreds breaks; the jitter costs up to two more"},
			{Name: full, Relation: scenario.AtMost, Bound: 0.01, Why: "it is picked only when every sample leads to it"},
		},
		Takes: 12 * time.Second, TakesQuick: 2 * time.Second,
		Run: func(r *scenario.Run) error {
			if err := rings(r, sub); err != nil {
				return err
			}
			return choices(r)
		},
	}
}
