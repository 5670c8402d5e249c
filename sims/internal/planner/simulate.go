package planner

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/selection"
	"github.com/ringway/ringway/sims/internal/fleet"
	"github.com/ringway/ringway/sims/internal/policy"
	"github.com/ringway/ringway/sims/internal/queueing"
	"github.com/ringway/ringway/sims/internal/scenario"
)

const (
	// fullest is the share of the workers' slots in use above which queues grow for as long
	// as the rate lasts, so that a p99 depends on the time that is simulated.
	fullest = 0.95
	// leastWorkers and mostWorkers bound the simulated part of a service, leastRelays its
	// relays.
	leastWorkers = 40
	mostWorkers  = 2000
	leastRelays  = 8
	// mostP99 is below the longest time that a queueing.Result distinguishes from longer
	// ones, ten minutes.
	mostP99 = 5 * time.Minute
	// mostEach bounds the requests of a worker in a second, and mostRefreshes how often the
	// balancers refresh a worker, so that a simulation takes about a second.
	mostEach      = 50_000
	mostRefreshes = 10_000_000
)

// simulate sets the p99 of an option: infinite if the workers are full.
func (q *question) simulate(o *option) error {
	result, err := q.run(o, policy.Ringway("ringway", selection.DefaultConfig()))
	if err != nil {
		return err
	}
	o.p50, o.p99 = math.Inf(1), math.Inf(1)
	if result != nil {
		o.requests = result.Requests
		o.p50, o.p99 = milliseconds(result.Percentile(50)), milliseconds(result.Percentile(99))
	}
	o.reaches = o.p99 <= milliseconds(q.p99)
	return nil
}

// run simulates a part of one service of an option. The result is nil if the workers are full.
func (q *question) run(o *option, p queueing.Policy) (*queueing.Result, error) {
	if q.busy() > fullest {
		return nil, nil
	}
	workers := q.workers / q.services
	each := q.rate / float64(q.workers) // requests of a worker in a second
	if each > mostEach {
		return nil, fmt.Errorf("a worker gets %.0f requests/s: at most %d are simulated: ask for a part of the rate and of the slots", each, mostEach)
	}
	// Estimates need some seconds where requests are rare, and a fleet ten of its longest
	// requests to fill.
	warmup := max(1, 6*min(1, 100/each), 10*q.mean.Seconds())
	refreshes := float64(time.Second) / float64(queueing.RefreshEvery) * float64(o.m) // of a worker in a second
	part := int(min(q.requests/each, mostRefreshes/refreshes) / (2 * warmup))
	part = min(workers, mostWorkers, max(leastWorkers, part))
	relays := int(math.Round(float64(o.perService) * float64(part) / float64(workers)))
	relays = min(o.perService, max(relays, leastRelays, o.m+1))
	end := max(2*warmup, min(q.requests/each, mostRefreshes/refreshes)/float64(part))

	members := fleet.New(relays, part)
	plan, err := affinity.NewPlan(affinity.PlanConfig{
		Service: queueing.Service, Relays: affinity.Relays(members.RelayIDs()), Workers: affinity.Workers(members.WorkerIDs()),
		RelaysPerService: max(relays, o.m), Minimums: affinity.Minimums{PeersPerWorker: o.m, PeersPerRelay: o.p}, Strategy: q.strategy, IndexSource: q.index,
	})
	if err != nil {
		return nil, err
	}
	ranges := make([][]queueing.Endpoint, relays)
	if err := fleet.EachConnection(plan, func(relay, worker int, weight float64) {
		ranges[relay] = append(ranges[relay], queueing.Endpoint{Worker: worker, Weight: weight})
	}); err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(ranges, func(r []queueing.Endpoint) bool { return len(r) == 0 }); i >= 0 {
		return nil, fmt.Errorf("relay %d of %d has none of %d workers: ask for fewer relays", i, relays, part)
	}
	result, err := queueing.Run(queueing.Config{
		Topology: queueing.Topology{Clients: relays, Workers: part, Range: part}, Ranges: ranges,
		Scenario: queueing.Scenario{Name: "plan", End: selection.Instant(end * float64(time.Second))},
		Policy:   p, Load: q.busy(), Seed: q.seed, Measured: q.measured, Slots: q.slots,
		Warmup: selection.Instant(warmup * float64(time.Second)),
		// A refused request would be missing in the p99.
		QueueBound: 1 << 30,
	})
	return &result, err
}

// limit returns what limits the p99 if there is no answer.
func (q *question) limit(r *scenario.Run, options []*option, best *option) (string, error) {
	if best != nil {
		return fmt.Sprintf("%d relays, m = %d, p = %d", best.relays, best.m, best.p), nil
	}
	at := nearest(options)
	if at.reaches { // of time; the other promise names the limits
		return "the fleet that is nearest", nil
	}
	config := queueing.Config{Seed: q.seed, Measured: q.measured}
	alone := config.Work(1_000_000)
	slices.Sort(alone)
	if own := alone[len(alone)*99/100] + 2*queueing.OneWay; own > q.p99 {
		return fmt.Sprintf("the service times themselves: 1 of 100 takes longer than %v without any queue, so no number of relays helps", own.Round(100*time.Microsecond)), nil
	}
	if q.busy() > fullest {
		needed := math.Ceil(q.rate * q.mean.Seconds() / float64(q.slots) / fullest)
		return fmt.Sprintf("the workers: they would use %.0f %% of their slots, and queues grow without end; %.0f workers are the least", 100*q.busy(), needed), nil
	}
	all, err := q.run(at, policy.Omniscient)
	if err != nil {
		return "", err
	}
	if all.Percentile(99) <= q.p99 {
		return fmt.Sprintf("what relays know: a policy that knows every queue has %.1f ms", milliseconds(all.Percentile(99))), nil
	}
	text := fmt.Sprintf("the workers, which use %.0f %% of their slots: even a policy that knows every queue has %.1f ms", 100*q.busy(), milliseconds(all.Percentile(99)))
	factors := []float64{1.1, 1.25, 1.5, 2, 3, 5}
	reach := make([]bool, len(factors))
	if err := r.Parallel(len(factors), func(i int) error {
		more, o := *q, *at
		more.workers = int(math.Ceil(float64(q.workers) * factors[i]))
		err := more.simulate(&o)
		reach[i] = o.reaches
		return err
	}); err != nil {
		return "", err
	}
	if i := slices.Index(reach, true); i >= 0 {
		return fmt.Sprintf("%s; %.0f workers would be enough", text, math.Ceil(float64(q.workers)*factors[i])), nil
	}
	return text, nil
}
