// Package churn counts the connections that move when a worker or a relay joins or leaves.
//
// In the plans, the scenario counts the moved connections for every strategy, Ringway's and
// those of other systems, next to the lower bound. With real tables of package peering, the
// scenario counts the opened connections: for pairs that leave and join with slack, for
// rolling restarts with grace, and while only half of the relays know of a change.
//
//	plans.go      one member joins or leaves, in the plan
//	exchanges.go  many pairs of a leave and a join, with slack
//	rollouts.go   every relay or worker restarts once, with grace
//	splits.go     half of the relays know of a change
package churn

import (
	"fmt"
	"time"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/sims/internal/fleet"
	"github.com/ringway/ringway/sims/internal/scenario"
)

// The promises, by name.
const (
	slotNear   = "connections that a relay event moves by slot ÷ lower bound"
	rendezNear = "connections that an event moves with rendezvous ÷ lower bound"
	slackSaves = "connections opened for a pair of workers at 50x1000x3, by slot"
	graceHolds = "connections opened by a rolling restart ÷ connections of the fleet"
	splitHolds = "relays that a worker lacks, beyond the one that left, while half of the relays know"
)

// subject is the code under test; tests replace it with broken code.
type subject struct {
	strategies []fleet.Strategy
}

// New returns the scenario.
func New() scenario.Scenario { return with(subject{fleet.Strategies()}) }

func with(sub subject) scenario.Scenario {
	return scenario.Scenario{
		Name: "churn",
		Asks: "How many connections move when a worker or a relay comes or goes, and what do slack, grace and draining spare?",
		Settings: []scenario.Setting{
			{Name: "fleets", Help: "fleets for the plans, relays x workers x m", Default: fleet.Sizes, Quick: fleet.Sizes[:2]},
			{Name: "trials", Help: "how often each event happens to a plan, and in a split view", Default: 50, Min: 5, Max: 1000},
			{Name: "strategy", Help: "the strategy under peering", Default: string(affinity.Projection), OneOf: []string{string(affinity.Projection), string(affinity.Rendezvous)}},
			{Name: "index", Help: "index sources under peering", Default: []string{string(affinity.IndexRank), string(affinity.IndexSlot)}, OneOf: []string{string(affinity.IndexRank), string(affinity.IndexSlot)}},
			{Name: "slack", Help: "places outside the range at which a connection is kept, of the judged case", Default: 2, Min: 0, Max: 100},
			{Name: "slacks", Help: "the slacks of the table", Default: []int{0, 1, 2, 4}, Quick: []int{0, 2}, Min: 0, Max: 100},
			{Name: "grace", Help: "how long a member that vanished keeps its place", Default: 15 * time.Second, Min: time.Duration(0), Max: 10 * time.Minute},
			{Name: "drain", Help: "how long a connection that is not needed stays; 0s closes it immediately", Default: 30 * time.Second, Min: time.Duration(0), Max: 10 * time.Minute},
			{Name: "pairs", Help: "pairs of workers that leave and join; the figures are noisy below some hundred", Default: 400, Quick: 60, Min: 5, Max: 10000},
			{Name: "rollout-fleets", Help: "fleets of the rolling restarts", Default: []string{"10x100x3", "50x1000x3"}},
			{Name: "split-fleets", Help: "fleets of the split views", Default: []string{"7x1000x3", "50x1000x3", "101x997x3"}, Quick: []string{"7x100x3", "50x500x3"}},
			{Name: "large", Help: "also a fleet of 300x10000x3 under peering", Default: true, Quick: false},
		},
		Promises: []scenario.Promise{
			{Name: slotNear, Relation: scenario.AtMost, Bound: 1.3, Why: "50x1000x3 and 300x10000x3: a relay that is replaced disturbs its own range, and chains of slots are short"},
			{Name: rendezNear, Relation: scenario.AtMost, Bound: 1.1, Why: "a member moves its own connections and no others"},
			{Name: slackSaves, Relation: scenario.AtMost, Bound: 12, Why: "28 without slack; ten runs of 400 pairs gave 8.5 to 10.0, and 50 pairs up to 10.9"},
			{Name: graceHolds, Relation: scenario.AtMost, Bound: 1.1, Why: "each process that restarts connects once; no other connection moves"},
			{Name: splitHolds, Relation: scenario.AtMost, Bound: 0, Unit: "relays", Why: "connections are opened before others are closed"},
		},
		Takes: 25 * time.Second, TakesQuick: 4 * time.Second,
		Run: func(r *scenario.Run) error {
			sizes, err := fleet.ParseSizes(r.Texts("fleets"))
			if err != nil {
				return err
			}
			if err := plans(r, sub, sizes); err != nil {
				return err
			}
			for _, part := range []func(*scenario.Run) error{exchanges, rollouts, splits} {
				if err := part(r); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// size returns the size of a fleet for the tables about peering.
func size(relays, workers, m int) fleet.Size {
	return fleet.Size{Relays: relays, Workers: workers, PerWorker: m, PerRelay: affinity.DefaultMinimums.PeersPerRelay}
}

// sizeName returns a size in the syntax of settings.
func sizeName(s fleet.Size) string { return fmt.Sprintf("%dx%dx%d", s.Relays, s.Workers, s.PerWorker) }

// indexes returns the index sources of a run; rendezvous has no index, so one is enough.
func indexes(r *scenario.Run) []affinity.IndexSource {
	var out []affinity.IndexSource
	for _, text := range r.Texts("index") {
		out = append(out, affinity.IndexSource(text))
	}
	if r.Text("strategy") == string(affinity.Rendezvous) {
		return out[:1]
	}
	return out
}

// rolloutPolicy returns the settings of a run with an index source, without slack and grace.
func rolloutPolicy(r *scenario.Run, index affinity.IndexSource) fleet.RolloutPolicy {
	return fleet.RolloutPolicy{Strategy: affinity.Strategy(r.Text("strategy")), Index: index, Drain: drain(r.Duration("drain"))}
}

// drain converts a drain delay for package peering, in which zero means the default and a
// negative value means no delay.
func drain(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
}

// spares returns the number of relays of the fleet per relay that serves.
func spares(index affinity.IndexSource) int {
	if index == affinity.IndexSlot {
		return 2
	}
	return 1
}
