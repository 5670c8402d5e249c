package latency

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/selection"
	"github.com/ringway/ringway/sims/internal/fleet"
	"github.com/ringway/ringway/sims/internal/policy"
	"github.com/ringway/ringway/sims/internal/queueing"
	"github.com/ringway/ringway/sims/internal/scenario"
)

// uneven is a fleet with 16 workers for each relay, as services have by default.
var uneven = queueing.Topology{Clients: 30, Workers: 160, Range: 16}

const (
	// fits is the utilisation of the fullest worker up to which a promise about projection
	// holds.
	fits = 0.95
	// unevenEnd ends a quick run; the others end as those of the grid do.
	unevenEnd = selection.Instant(10 * time.Second)
)

// demand is how traffic divides among the relays of uneven, and what their plan does about it.
type demand struct {
	name    string
	traffic func(relay int, random *rand.Rand) float64
	known   bool    // the plan knows the traffic of each relay
	zones   int     // relays and workers are in that many zones, evenly; 0 for no zones
	slack   float64 // of the zones

	strategy affinity.Strategy
}

func (d demand) knows() string {
	if d.known {
		return "known"
	}
	return "unknown"
}

const equalTraffic = "equal"

// demands returns all kinds of traffic. The first two have equal traffic.
func demands() (out []demand) {
	kinds := []demand{
		{name: equalTraffic, traffic: func(int, *rand.Rand) float64 { return 1 }, known: true},
		{name: "uniform in 0.5 to 1.5", traffic: func(_ int, random *rand.Rand) float64 { return 0.5 + random.Float64() }},
		{name: "0.3, 1 or 1.7", traffic: func(relay int, _ *rand.Rand) float64 { return 0.3 + 0.7*float64(relay%3) }},
	}
	for _, d := range kinds {
		for _, known := range []bool{true, false} {
			for _, d.strategy = range []affinity.Strategy{affinity.Projection, affinity.Rendezvous} {
				if d.name != equalTraffic || known {
					d.known = known
					out = append(out, d)
				}
			}
		}
	}
	zone := demand{name: "a zone of three at 1.5", zones: 3, slack: affinity.PlanConfig{}.WithDefaults().ZoneSlack, strategy: affinity.Projection}
	zone.traffic = func(relay int, _ *rand.Rand) float64 {
		if relay%3 == 0 {
			return 1.5
		}
		return 1
	}
	alone := zone
	zone.known, alone.known, alone.name, alone.slack = true, true, zone.name+", zones keep to themselves", 10
	out = append(out, zone, alone)
	zone.known = false
	out = append(out, zone)
	return out
}

// allotment is a plan for a demand: what each relay carries, and over which connections.
type allotment struct {
	traffic []float64 // of each relay, as a multiple of the mean
	ranges  [][]queueing.Endpoint
	bound   float64 // load of the fullest worker ÷ mean, with the traffic that the plan knows
	fullest float64 // with the real traffic
}

// allot plans the fleet. The traffic that the plan knows is off by a share of what separates a
// relay from the mean.
func (d demand) allot(off float64, random *rand.Rand) (allotment, error) {
	n := uneven.Clients
	f, a := fleet.New(n, uneven.Workers), allotment{ranges: make([][]queueing.Endpoint, n)}
	sum := 0.0
	for i := range n {
		a.traffic = append(a.traffic, d.traffic(i, random))
		sum += a.traffic[i]
	}
	relays, workers := affinity.Relays(f.RelayIDs()), affinity.Workers(f.WorkerIDs())
	place := func(i int) affinity.Place {
		if d.zones == 0 {
			return affinity.Place{}
		}
		return affinity.Place{Datacenter: fmt.Sprintf("zone-%d", i%d.zones), Region: "region"}
	}
	for i := range relays {
		a.traffic[i] *= float64(n) / sum
		relays[i].Place = place(i)
		if d.known {
			relays[i].Traffic = int(math.Round(1e6 * (1 + (a.traffic[i]-1)*(1-off))))
		}
	}
	for i := range workers {
		workers[i].Place = place(i)
	}
	p, err := affinity.NewPlan(affinity.PlanConfig{
		Service: queueing.Service, Relays: relays, Workers: workers, RelaysPerService: n, Strategy: d.strategy, ZoneSlack: d.slack,
	})
	if err != nil {
		return a, err
	}
	a.bound = slices.Max(p.Loads())
	loads := make([]float64, uneven.Workers)
	err = fleet.EachConnection(p, func(relay, worker int, share float64) {
		if share > 0 { // a warm standby gets no requests
			a.ranges[relay] = append(a.ranges[relay], queueing.Endpoint{Worker: worker, Weight: share})
			loads[worker] += share * a.traffic[relay]
		}
	})
	a.fullest = slices.Max(loads) * float64(uneven.Workers) / float64(n)
	return a, err
}

// unequal measures relays with unequal traffic compared with relays with equal traffic.
func unequal(r *scenario.Run, measured queueing.Measured) error {
	type run struct {
		p99, alone, errors, bound, fullest float64
	}
	all, loads, runs := demands(), r.Floats("unequal-loads"), r.Int("unequal-runs")
	results := make([]run, len(loads)*len(all))
	kind := queueing.Equal
	if r.Quick() {
		kind.End = unevenEnd
	}
	policies := []queueing.Policy{policy.Ringway(ours, configOf(r)), policy.Random}
	if err := r.Parallel(len(results), func(i int) error {
		load, d := loads[i/len(all)], all[i%len(all)]
		var sums [2]queueing.Result // by policy
		for k := range runs {
			// The demands of one run and load have the same random traffic.
			a, err := d.allot(r.Float("traffic-error"), r.Rand(fmt.Sprintf("traffic-%d", k)))
			if err != nil {
				return err
			}
			for j := range sums {
				one, err := queueing.Run(queueing.Config{
					Topology: uneven, Scenario: kind, Policy: policies[j], Load: load, Measured: measured,
					Ranges: a.ranges, Traffic: a.traffic, Seed: (r.Seed()-1)*1000 + uint64(k) + 1,
				})
				if err != nil {
					return err
				}
				sums[j].Add(one)
			}
			results[i].bound, results[i].fullest = max(results[i].bound, a.bound), max(results[i].fullest, a.fullest)
		}
		results[i].p99, results[i].alone, results[i].errors = milliseconds(&sums[0], 99), milliseconds(&sums[1], 99), sums[0].ErrorShare()
		return r.Context().Err()
	}); err != nil {
		return err
	}
	service := float64(queueing.MeanService.Milliseconds())
	t := r.Table(scenario.Table{
		Name: "unequal", Title: fmt.Sprintf("relays with unequal traffic: %d relays, %d workers, m = 3", uneven.Clients, uneven.Workers), Group: 1,
		Note: "A plan that knows the traffic of each relay gives every worker the same load, as far as the connections allow. Each row is compared with equal traffic by the same strategy. By weights alone, a relay picks at random and knows nothing about the workers.",
		Columns: []scenario.Column{
			{Name: "load", Unit: "%", Key: true}, {Name: "traffic of relays", Key: true}, {Name: "in the plan", Key: true}, {Name: "strategy", Key: true},
			{Name: "load of the fullest worker ÷ mean", Digits: 2}, {Name: "p99", Unit: "service times", Digits: 1}, {Name: "÷ equal traffic", Digits: 2}, {Name: "errors", Unit: "%", Digits: 2},
			{Name: "p99 by weights alone", Unit: "service times", Digits: 1},
		},
	})
	for i, got := range results {
		load, d := loads[i/len(all)], all[i%len(all)]
		same := results[i/len(all)*len(all)] // by projection
		if d.strategy == affinity.Rendezvous {
			same = results[i/len(all)*len(all)+1]
		}
		ratio := got.p99 / same.p99
		t.Add(percent(load), d.name, d.knows(), string(d.strategy), got.fullest, got.p99/service, ratio, 100*got.errors, got.alone/service)
		where := fmt.Sprintf("%s, %d %% load", d.name, percent(load))
		switch {
		case d.name == equalTraffic || !d.known || d.zones > 0 && d.slack != affinity.PlanConfig{}.WithDefaults().ZoneSlack:
		case d.zones > 0:
			r.Check(evenZones, ratio, where)
		case d.strategy == affinity.Rendezvous:
			r.Check(evenRendezvous, ratio, where)
		case got.bound*load < fits:
			r.Check(evenProjection, ratio, where)
		}
	}
	return nil
}
