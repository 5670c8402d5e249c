package validation

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/ringway/ringway/selection"
	"github.com/ringway/ringway/sims/internal/policy"
	"github.com/ringway/ringway/sims/internal/queueing"
)

// observation is what one side saw of the requests that count.
type observation struct {
	latencies []time.Duration // at the worker: without network and proxies
	byWorker  []int
	failed    int
}

// draws is how often the model runs: the same requests, and relays that draw other pairs of
// workers. How far they are apart is how far a single run of processes may be off by chance.
const draws = 7

// simulateAll runs the case in the model as often as there are draws. It returns the requests, for
// the other side to repeat.
func simulateAll(c Case) (requests []request, all []observation, err error) {
	for draw := range draws {
		var seen observation
		if requests, seen, err = simulate(c, draw); err != nil {
			return nil, nil, err
		}
		all = append(all, seen)
	}
	return requests, all, nil
}

func simulate(c Case, draw int) ([]request, observation, error) {
	seen := observation{byWorker: make([]int, c.Workers)}
	var requests []request
	ours := policy.Ringway("ringway", c.selection)
	recording := queueing.Policy{Name: ours.Name, New: func(env queueing.Env) queueing.Client {
		env.Rand = rand.New(rand.NewPCG(c.Seed, uint64(1000*draw+env.Index)))
		return &recorder{Client: ours.New(env), relay: env.Index, requests: &requests, seen: &seen}
	}}
	_, err := queueing.Run(queueing.Config{
		Topology: c.topology(), Policy: recording, Load: c.Load, Seed: c.Seed,
		Scenario: queueing.Scenario{Name: "validation", SlowShare: slowShare, SlowBy: slowBy, End: queueing.Warmup + selection.Instant(c.Measured)},
	})
	if err != nil {
		return nil, observation{}, fmt.Errorf("simulate: %w", err)
	}
	for i, work := range c.work(len(requests)) {
		requests[i].work = work
	}
	return requests, seen, nil
}

// recorder notes what a client is asked and told.
type recorder struct {
	queueing.Client
	relay    int
	requests *[]request // of all clients
	seen     *observation
}

// Pick is called once for each arrival, in their order.
func (r *recorder) Pick(now selection.Instant) queueing.Ticket {
	ticket := r.Client.Pick(now)
	*r.requests = append(*r.requests, request{due: time.Duration(now), relay: r.relay})
	if now >= queueing.Warmup {
		r.seen.byWorker[ticket.Worker]++
	}
	return ticket
}

// Done is called once for each answer.
func (r *recorder) Done(t queueing.Ticket, a queueing.Answer) {
	r.Client.Done(t, a)
	switch {
	case a.Start < queueing.Warmup:
	case a.Outcome == queueing.Success:
		r.seen.latencies = append(r.seen.latencies, time.Duration(a.Now-a.Start)-2*queueing.OneWay)
	default:
		r.seen.failed++
	}
}
