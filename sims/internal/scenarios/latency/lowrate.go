package latency

import (
	"fmt"

	"github.com/ringway/ringway/sims/internal/policy"
	"github.com/ringway/ringway/sims/internal/queueing"
	"github.com/ringway/ringway/sims/internal/scenario"
)

// thin has so many clients, and each so many workers, that a client asks a worker once in
// three seconds: what it knows of it is old.
var thin = queueing.Topology{Clients: 300, Workers: 60, Range: 60}

const (
	thinLoad = 0.8
	wholeOne = "ringway, whole range"
	unsaid   = "ringway, no load reports"
)

// lowRate compares the effective range with the whole one.
func lowRate(r *scenario.Run) error {
	whole, narrow := configOf(r), configOf(r)
	whole.EndpointRate, narrow.EndpointRate = 0, r.Float("endpoint-rate")
	all := []queueing.Policy{policy.Omniscient, policy.Ringway(ours, narrow), policy.Ringway(wholeOne, whole), policy.Unreported(unsaid, policy.Ringway(ours, narrow)), policy.Unreported(unsaid+", whole range", policy.Ringway(ours, whole)), policy.PeakEWMA, policy.Prequal(0.6), policy.RoundRobin}
	const runs = 2
	results := make([]queueing.Result, len(all)*runs)
	if err := r.Parallel(len(results), func(i int) (err error) {
		results[i], err = queueing.Run(queueing.Config{
			Topology: thin, Scenario: queueing.LowRate, Policy: all[i/runs], Load: thinLoad,
			Seed: (r.Seed()-1)*1000 + uint64(i%runs) + 1,
		})
		return err
	}); err != nil {
		return err
	}
	t := r.Table(scenario.Table{
		Name: "low-rate", Title: fmt.Sprintf("next to no traffic: %d relays that know all of %d workers, %.0f %% load, a request for each pair in 3 s", thin.Clients, thin.Workers, 100*thinLoad),
		Note: "With little traffic a relay uses so many workers of its range that each gets endpoint-rate requests a second.",
		Columns: []scenario.Column{
			{Name: "policy", Key: true}, {Name: "p50", Unit: "ms", Digits: 1}, {Name: "p99", Unit: "ms", Digits: 1}, {Name: "p99.9", Unit: "ms", Digits: 1}, {Name: "errors", Unit: "%", Digits: 2},
		},
	})
	p99 := map[string]float64{}
	for i, p := range all {
		var sum queueing.Result
		for k := range runs {
			sum.Add(results[runs*i+k])
		}
		p99[p.Name] = milliseconds(&sum, 99)
		t.Add(p.Name, milliseconds(&sum, 50), p99[p.Name], milliseconds(&sum, 99.9), 100*sum.ErrorShare())
	}
	r.Check(narrows, p99[ours]/p99[wholeOne], fmt.Sprintf("%.0f ms, with the whole range %.0f ms", p99[ours], p99[wholeOne]))
	return nil
}
