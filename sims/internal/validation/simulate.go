package validation

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/ringway/ringway/selection"
	model "github.com/ringway/ringway/sims/internal/fleet"
	"github.com/ringway/ringway/sims/internal/policy"
	"github.com/ringway/ringway/sims/internal/queueing"
)

// observation holds one side's results of the measured requests.
type observation struct {
	latencies []time.Duration // at the worker, without network and proxies
	byWorker  []int
	failed    int
}

// draws is the number of runs of the model, with the same requests and different random pairs
// of workers. Their spread shows how far a single run of processes may be off by chance.
const draws = 7

// simulateAll runs the case in the model draws times. The fleet of processes replays the returned
// requests.
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
	cfg := c.config()
	cfg.Policy = recording
	_, err := queueing.Run(cfg)
	if err != nil {
		return nil, observation{}, fmt.Errorf("simulate: %w", err)
	}
	for i, work := range cfg.Work(len(requests)) {
		requests[i].work = work
	}
	return requests, seen, nil
}

// recorder is a client that records its requests and answers.
type recorder struct {
	queueing.Client
	relay    int
	requests *[]request // of all clients
	seen     *observation
}

// Pick records one request. Pick is called once for each arrival, in the order of arrival.
func (r *recorder) Pick(now selection.Instant) queueing.Ticket {
	ticket := r.Client.Pick(now)
	*r.requests = append(*r.requests, request{due: time.Duration(now), relay: r.relay})
	if now >= queueing.Warmup {
		r.seen.byWorker[ticket.Worker]++
	}
	return ticket
}

// Done records one answer.
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

// Case configures both the simulation and the fleet of processes.
type Case struct {
	Relays, Workers int
	// Load is the rate of requests as a share of the capacity of all workers.
	Load float64
	// Measured is the duration of the measurement, which starts after queueing.Warmup.
	Measured time.Duration
	Seed     uint64
	// selection is the configuration of the simulated relays; the real relays use the
	// defaults.
	selection selection.Config
}

// One worker in five is three times slower.
const slowShare, slowBy = 0.2, 3

// The service name and the member ids must be the same on both sides, because ranges depend on
// both.
const service = queueing.Service

// perWorker is how many relays each worker has.
const perWorker = 3

func (c Case) topology() queueing.Topology {
	return queueing.Topology{Clients: c.Relays, Workers: c.Workers, Range: perWorker * c.Workers / c.Relays}
}

// config is the model of the case, without a policy.
func (c Case) config() queueing.Config {
	return queueing.Config{
		Topology: c.topology(), Load: c.Load, Seed: c.Seed,
		Scenario: queueing.Scenario{Name: "validation", SlowShare: slowShare, SlowBy: slowBy, End: queueing.Warmup + selection.Instant(c.Measured)},
	}
}

// slowFactors returns how many times slower than normal each worker is.
func (c Case) slowFactors() []float64 {
	cfg := c.config()
	return cfg.SlowFactors()
}

// request is one request of the case.
type request struct {
	due   time.Duration // time since the start
	relay int
	work  time.Duration // service time at a worker that is not slow
}

// measured reports whether the request is after the warm-up and thus measured.
func (r request) measured() bool { return r.due >= time.Duration(queueing.Warmup) }

// slack is the default slack of the relays.
const slack = 2

// simulateDeath counts the connections of the relays, and the connections that they open after
// a worker dies.
func simulateDeath(c Case, victim int) (before, opened int, err error) {
	m := model.NewMesh(model.Size{Relays: c.Relays, Workers: c.Workers, PerWorker: perWorker, PerRelay: 1}, model.RolloutPolicy{Slack: slack})
	m.Service = service
	view, f := m.NewView(), model.New(c.Relays, c.Workers)
	if err = m.Begin(view, f); err != nil {
		return 0, 0, fmt.Errorf("simulate connections: %w", err)
	}
	before, m.Opened = m.Opened, 0
	m.KillWorker(victim)
	f.Workers = model.Without(f.Workers, victim)
	if err = m.All(view, f); err != nil {
		return 0, 0, fmt.Errorf("simulate connections: %w", err)
	}
	return before, m.Opened, nil
}
