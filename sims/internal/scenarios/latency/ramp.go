package latency

import (
	"fmt"

	"github.com/ringway/ringway/sims/internal/policy"
	"github.com/ringway/ringway/sims/internal/queueing"
	"github.com/ringway/ringway/sims/internal/scenario"
)

// rampLoads are the steps of Prequal's ramp through overload, each a ninth above the last one
// (Wydrowski and others, "Load is not what you should balance", 2024, section 5).
var rampLoads = []float64{0.75, 0.83, 0.93, 1.03, 1.14, 1.27, 1.41, 1.57, 1.74}

// ramp measures what a fleet serves while the load rises through its capacity. One worker in five
// is three times slower.
func ramp(r *scenario.Run, measured queueing.Measured) error {
	place := topologies[1]
	if r.Quick() {
		place = topologies[0]
	}
	kind := queueing.Overload
	kind.End = manyEnd
	all := policies(configOf(r))
	results := make([]queueing.Result, len(rampLoads)*len(all))
	if err := r.Parallel(len(results), func(i int) (err error) {
		i = len(results) - 1 - i // the longest first
		results[i], err = queueing.Run(queueing.Config{
			Topology: place.Topology, Scenario: kind, Policy: all[i%len(all)], Load: rampLoads[i/len(all)], Measured: measured,
			Seed: (r.Seed()-1)*1000 + 1,
		})
		return err
	}); err != nil {
		return err
	}
	t := r.Table(scenario.Table{
		Name: "ramp", Title: fmt.Sprintf("a ramp through overload, %s: steps of a ninth, one worker in five is three times slower", place.name), Group: 1,
		Note: fmt.Sprintf("A worker sheds what exceeds a queue of %d requests. Possible is what the workers can serve, of what arrives.", queueing.QueueBound),
		Columns: []scenario.Column{
			{Name: "load", Unit: "%", Key: true}, {Name: "policy", Key: true},
			{Name: "p50", Unit: "ms", Digits: 0}, {Name: "p99", Unit: "ms", Digits: 0}, {Name: "errors", Unit: "%", Digits: 1}, {Name: "served ÷ possible", Digits: 3},
		},
	})
	for i := range results {
		load, p, got := rampLoads[i/len(all)], all[i%len(all)].Name, &results[i]
		served := (1 - got.ErrorShare()) * max(1, load)
		t.Add(percent(load), p, milliseconds(got, 50), milliseconds(got, 99), 100*got.ErrorShare(), served)
		if p == r.Text("judged") && p != policy.Omniscient.Name {
			r.Check(through, served, fmt.Sprintf("%d %% load", percent(load)))
		}
	}
	return nil
}
