// Package affinity checks that every worker has enough relays, that every relay has enough
// workers, and that no connection is unnecessary.
//
// The scenario covers the range of the original simulation of the projection, Uber's
// Hyperbahn (docs/sims of tchannel): from 0 to 100 workers with 50 relays, from 100 down to 50
// relays, and both minimums. The original never varied the minimums because a loop overwrote
// one of them. Then the scenario counts every fleet of up to 64 relays and 300 workers.
//
//	spectrum.go   plans, one fleet after another
//	compare.go    plans next to the strategies of other systems
//	sweep.go      every shape of a fleet
package affinity

import (
	"time"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/sims/internal/fleet"
	"github.com/ringway/ringway/sims/internal/scenario"
)

// The promises, by name.
const (
	covered   = "workers with fewer than min(m, R) relays"
	supplied  = "relays with fewer than min(p, W) workers"
	fewest    = "connections more or less than the fewest that keep both minimums"
	evenOver  = "relays of a worker beyond ⌈connections ÷ W⌉"
	evenRange = "workers of a relay outside ⌊connections ÷ R⌋ to ⌈connections ÷ R⌉"
	balanced  = "load of the busiest worker ÷ mean"
	exact     = "largest difference of a load from the mean, in the sweep"
	floor     = "smallest range of rendezvous ÷ max(m·W, p·R)/R"
)

// subject is the code under test; tests replace it with broken code.
type subject struct {
	strategies []fleet.Strategy
	rangeOf    func(s affinity.Shape, index int) (start, length int, err error)
	weights    func(dst []float64, s affinity.Shape, index int) ([]float64, error)
}

// New returns the scenario.
func New() scenario.Scenario {
	return with(subject{
		strategies: fleet.Strategies(),
		rangeOf: func(s affinity.Shape, index int) (int, int, error) {
			r, err := s.Range(index)
			return r.Start(), r.Len(), err
		},
		weights: func(dst []float64, s affinity.Shape, index int) ([]float64, error) {
			return s.AppendWeights(dst, index)
		},
	})
}

func with(sub subject) scenario.Scenario {
	return scenario.Scenario{
		Name: "affinity",
		Asks: "Does every worker have its relays, every relay its workers, and no member a connection too many?",
		Settings: []scenario.Setting{
			{Name: "fleets", Help: "fleets to compare strategies at, relays x workers x m", Default: fleet.Sizes, Quick: fleet.Sizes[:4]},
			{Name: "strategy", Help: "the strategy of the spectrum", Default: fleet.ByRank, OneOf: []string{fleet.ByRank, fleet.BySlot, fleet.Rendezvous}},
			{Name: "relays", Help: "relays while workers come", Unit: "relays", Default: 50, Min: 1, Max: 1000},
			{Name: "workers", Help: "workers come one by one up to here", Unit: "workers", Default: 100, Min: 1, Max: 5000},
			{Name: "partition-from", Help: "relays before the partition", Unit: "relays", Default: 100, Min: 1, Max: 1000},
			{Name: "partition-to", Help: "relays that are left", Unit: "relays", Default: 50, Min: 1, Max: 1000},
			{Name: "m", Help: "relays per worker, at least", Unit: "relays", Default: affinity.DefaultMinimums.PeersPerWorker, Min: affinity.LeastPeersPerWorker, Max: 100},
			{Name: "p", Help: "workers per relay, at least", Unit: "workers", Default: affinity.DefaultMinimums.PeersPerRelay, Min: affinity.LeastPeersPerRelay, Max: 100},
			{Name: "sweep-relays", Help: "largest number of relays of the sweep", Unit: "relays", Default: 64, Min: 1, Max: 200},
			{Name: "sweep-workers", Help: "largest number of workers of the sweep", Unit: "workers", Default: 300, Min: 1, Max: 2000},
			{Name: "stride", Help: "step between the numbers of workers in the sweep", Default: 1, Quick: 7, Min: 1, Max: 1000},
		},
		Promises: []scenario.Promise{
			{Name: covered, Relation: scenario.AtMost, Bound: 0, Why: "a worker below m is lost to a restart together with a failure"},
			{Name: supplied, Relation: scenario.AtMost, Bound: 0, Why: "a relay needs a choice of workers"},
			{Name: fewest, Relation: scenario.AtMost, Bound: 0, Unit: "connections", Why: "projection only: max(m·W, p·R), and R·W at most; rendezvous adds some where ranges are small"},
			{Name: evenOver, Relation: scenario.AtMost, Bound: 0, Unit: "relays", Why: "projection only: no relay is fully connected unless the minimums require it"},
			{Name: evenRange, Relation: scenario.AtMost, Bound: 0, Unit: "workers", Why: "projection only"},
			{Name: balanced, Relation: scenario.AtMost, Bound: 1.0005, Why: "weights even out what ranges cannot"},
			{Name: exact, Relation: scenario.AtMost, Bound: 1e-9, Unit: "relays' traffic", Why: "the weights of the projection are exact, except for rounding"},
			{Name: floor, Relation: scenario.AtLeast, Bound: 0.6, Why: "affinity gives no relay fewer, so that weights can make up for it"},
		},
		Takes: 12 * time.Second, TakesQuick: 3 * time.Second,
		Run: func(r *scenario.Run) error {
			for _, part := range []func(*scenario.Run, subject) error{compare, spectrum, sweep} {
				if err := part(r, sub); err != nil {
					return err
				}
			}
			return nil
		},
	}
}
