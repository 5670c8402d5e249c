package planner

import (
	"fmt"
	"time"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/sims/internal/queueing"
	"github.com/ringway/ringway/sims/internal/scenario"
	"github.com/ringway/ringway/sims/internal/trace"
)

// The promises, by name.
const (
	inTime = "p99 of the fleet"
	fits   = "limits that the fleet exceeds"
)

// New returns the planner as a scenario. It is a command of its own and not in reports, because
// it answers for one fleet.
func New() scenario.Scenario {
	whole := func(name, help, unit string, standard, least, most int) scenario.Setting {
		return scenario.Setting{Name: name, Help: help, Unit: unit, Default: standard, Min: least, Max: most}
	}
	return scenario.Scenario{
		Name: "plan",
		Asks: "How many relays does the fleet need, with which minimums, and what do they cost?",
		Settings: []scenario.Setting{
			whole("workers", "workers of the fleet", "workers", 1000, 1, 100_000),
			{Name: "rate", Help: "requests of the whole fleet at the busiest time", Unit: "requests/s", Default: 50_000.0, Min: 0.1, Max: 1e9},
			{Name: "p99", Help: "the time within which 99 of 100 requests must be answered", Default: 250 * time.Millisecond, Min: time.Millisecond, Max: mostP99},
			{Name: "service-times", Help: "file with the service times of requests: CSV with a column service_ms or service_s, or a request log", Default: ""},
			{Name: "service", Help: "of a request log, only the lines of this service", Default: ""},
			{Name: "arrivals", Help: "file with arrivals, replayed at the rate: CSV with a column arrival_ms or arrival_s as well, or a request log of all requests; without it they are random", Default: ""},
			{Name: "latency", Help: "mean service time, without a file; the times are log-normal with sigma 1", Default: queueing.MeanService, Min: 100 * time.Microsecond, Max: time.Minute},
			whole("slots", "requests that a worker serves at a time", "requests", queueing.Slots, 1, 100_000),
			whole("services", "services, each with an equal part of workers and rate", "services", 1, 1, 5000),
			whole("relays", "relays, 0 for as few as possible", "relays", 0, 0, mostRelays),
			whole("relays-per-service", "relays that serve a service, 0 to search, from the automatic number on", "relays", 0, 0, 1000),
			whole("m", "relays per worker, at least; 0 to search", "relays", 0, 0, 100),
			whole("p", "workers per relay, at least; 0 to search", "workers", 0, 0, 1000),
			{Name: "strategy", Help: "how ranges are cut", Default: string(affinity.Projection), OneOf: []string{string(affinity.Projection), string(affinity.Rendezvous)}},
			{Name: "index", Help: "where the index of a relay comes from", Default: string(affinity.IndexSlot), OneOf: []string{string(affinity.IndexSlot), string(affinity.IndexRank)}},
			whole("clients", "client connections of the whole fleet", "connections", 10_000, 0, 100_000_000),
			{Name: "changes", Help: "records that change in the whole fleet", Unit: "changes/min", Default: 30.0, Min: 0.0, Max: 1e6},
			{Name: "tls", Help: "whether gossip streams run over mutual TLS", Default: true},
			{Name: "cpu-per-request", Help: "CPU time of a relay for a request; 44 µs measured for HTTP/1.1 with short bodies, 84 µs over mutual TLS, 133 µs for gRPC", Default: 100 * time.Microsecond, Min: time.Microsecond, Max: time.Second},
			whole("cores", "processors of a relay", "processors", 2, 1, 1024),
			{Name: "relay-load", Help: "share of its processors that a relay may use when one relay is lost", Default: 0.6, Min: 0.01, Max: 1.0},
			whole("descriptors", "descriptors that a process may have", "descriptors", 65_536, 64, 10_000_000),
			whole("memory", "memory that a relay may take", "MiB", 1024, 1, 1_000_000),
			{Name: "bandwidth", Help: "gossip that one member may send and receive", Unit: "kB/s", Default: 64.0, Min: 0.1, Max: 1e6},
		},
		Promises: []scenario.Promise{
			{Name: inTime, Relation: scenario.AtMost, Unit: "ms", Why: "the setting p99"},
			{Name: fits, Relation: scenario.AtMost, Bound: 0, Unit: "limits", Why: "the settings cores and relay-load, descriptors, memory and bandwidth, and a relay more than m"},
		},
		Takes: 6 * time.Second, TakesQuick: 2 * time.Second,
		Run: run,
	}
}

// question is what is asked.
type question struct {
	workers, services              int
	rate                           float64
	p99                            time.Duration
	measured                       queueing.Measured
	mean                           time.Duration
	slots                          int
	relays, perService, m, p       int // 0 to search
	strategy                       affinity.Strategy
	index                          affinity.IndexSource
	clients                        int
	changes                        float64
	tls                            bool
	cpu                            time.Duration
	cores, load                    float64
	descriptors, memory, bandwidth float64
	seed                           uint64
	requests                       float64 // of one simulation, about
}

func ask(r *scenario.Run) (*question, error) {
	q := &question{
		workers: r.Int("workers"), services: r.Int("services"), rate: r.Float("rate"), p99: r.Duration("p99"), slots: r.Int("slots"),
		relays: r.Int("relays"), perService: r.Int("relays-per-service"), m: r.Int("m"), p: r.Int("p"),
		strategy: affinity.Strategy(r.Text("strategy")), index: affinity.IndexSource(r.Text("index")),
		clients: r.Int("clients"), changes: r.Float("changes"), tls: r.Bool("tls"),
		cpu: r.Duration("cpu-per-request"), cores: float64(r.Int("cores")), load: r.Float("relay-load"),
		descriptors: float64(r.Int("descriptors")), memory: float64(r.Int("memory")), bandwidth: r.Float("bandwidth"),
		seed: r.Seed(), requests: 250_000, mean: r.Duration("latency"),
	}
	if r.Quick() {
		q.requests = 60_000
	}
	switch {
	case q.services > q.workers:
		return nil, fmt.Errorf("services=%d: there are %d workers, and each offers one service", q.services, q.workers)
	case q.m != 0 && q.m < affinity.LeastPeersPerWorker:
		return nil, fmt.Errorf("m=%d: allowed is %d or more, or 0 to search", q.m, affinity.LeastPeersPerWorker)
	}
	q.measured.Mean = q.mean
	cfg := trace.Config{Service: r.Text("service")}
	if path := r.Text("service-times"); path != "" {
		t, err := trace.ReadFile(path, cfg)
		if err != nil {
			return nil, fmt.Errorf("service-times: %w", err)
		}
		q.mean = t.Mean()
		q.measured = queueing.Measured{Service: t.Service, Mean: q.mean}
	}
	if path := r.Text("arrivals"); path != "" {
		t, err := trace.ReadFile(path, cfg)
		if err != nil {
			return nil, fmt.Errorf("arrivals: %w", err)
		}
		if t.Gaps == nil {
			return nil, fmt.Errorf("arrivals: %s has fewer than two: it needs a column arrival_ms or arrival_s", path)
		}
		q.measured.Gaps = t.Gaps
	}
	return q, nil
}

// busy returns the share of the workers' slots in use.
func (q *question) busy() float64 {
	return q.rate * q.mean.Seconds() / float64(q.workers*q.slots)
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func run(r *scenario.Run) error {
	q, err := ask(r)
	if err != nil {
		return err
	}
	options, err := q.options(r)
	if err != nil {
		return err
	}
	best := choose(options)
	if best != nil {
		more, err := q.neighbours(r, best)
		if err != nil {
			return err
		}
		options = append(options, more...)
	}
	limit, err := q.limit(r, options, best)
	if err != nil {
		return err
	}
	shown := best
	if shown == nil { // the nearest one, for its cost
		shown = nearest(options)
	}
	answer(r, q, shown, best != nil)
	alternatives(r, q, options, best)
	r.Require(scenario.Measurement{Promise: inTime, Value: shown.p99, Bound: milliseconds(q.p99), Where: limit})
	r.Check(fits, float64(len(shown.over)), shown.exceeds())
	return nil
}

// answer adds the table of the recommended fleet, or of the nearest one if there is none.
func answer(r *scenario.Run, q *question, o *option, found bool) {
	t := r.Table(scenario.Table{
		Name: "answer", Title: fmt.Sprintf("%d relays answer %s requests/s of %d workers within %v", o.relays, scenario.Number(q.rate), q.workers, q.p99),
		Columns: []scenario.Column{{Name: "what", Key: true}, {Name: "value", Digits: 1}, {Name: "unit"}, {Name: "why"}},
	})
	t.Note = fmt.Sprintf("relay run --relays-per-service %s --min-peers-per-worker %d --min-peers-per-relay %d, on every relay; --strategy %s --index-source %s.", o.numbered(), o.m, o.p, q.strategy, q.index)
	if !found {
		t.Title = fmt.Sprintf("No fleet answers %s requests/s of %d workers within %v and keeps the limits; this one is nearest", scenario.Number(q.rate), q.workers, q.p99)
	}
	c := o.cost
	t.Add("relays", o.relays, "relays", o.why)
	t.Add("relays that serve a service", o.perService, "relays", "relays-per-service")
	t.Add("relays per worker, at least", o.m, "relays", "min-peers-per-worker")
	t.Add("workers per relay, at least", o.p, "workers", "min-peers-per-relay")
	t.Add("p99", cell(o.p99), "ms", fmt.Sprintf("of %d simulated requests, with the balancer of the relays; half a millisecond of it is the network", o.requests))
	t.Add("p50", cell(o.p50), "ms", "as p99")
	t.Add("slots of workers in use", 100*q.busy(), "%", fmt.Sprintf("rate · mean of %v ÷ (workers · %d slots)", q.mean.Round(time.Microsecond), q.slots))
	t.Add("CPU of a relay", 100*o.cpu/q.cores, "% of its processors", fmt.Sprintf("with one relay lost; at most %.0f %%", 100*q.load))
	t.Add("CPU of all relays", o.cores, "processors", "rate · cpu-per-request, more where requests are forwarded")
	t.Add("workers that a relay connects to", c.Workers, "connections", fmt.Sprintf("the fullest; %.1f on average, %d in a full mesh", c.MeanWorkers, q.workers))
	t.Add("relays that connect to a worker", c.Relays, "connections", "the worker with the most")
	t.Add("connections of the fleet", c.Connections, "connections", "affinity.Plan, added up over services")
	t.Add("descriptors of a relay", c.RelayDescriptors, "descriptors", fmt.Sprintf("the fullest; at most %.0f", mostDescriptors*q.descriptors))
	t.Add("descriptors of a worker", c.WorkerDescriptors, "descriptors", "as for relays")
	t.Add("memory of a relay", c.Memory, "MiB", fmt.Sprintf("the fullest; at most %.0f", q.memory))
	t.Add("gossip of a member", c.Gossip, "kB/s", fmt.Sprintf("sent and received; at most %s", scenario.Number(q.bandwidth)))
	t.Add("a crash is known to all", c.Detect.Seconds(), "s", "see sims capacity")
}

// alternatives adds the table of the other fleets.
func alternatives(r *scenario.Run, q *question, options []*option, best *option) {
	t := r.Table(scenario.Table{
		Name: "alternatives", Title: "What was tried",
		Note: "Each p99 is that of one simulation: differences of some percent are chance.",
		Columns: []scenario.Column{
			{Name: "relays", Key: true}, {Name: "of a service", Key: true}, {Name: "m", Key: true}, {Name: "p", Key: true}, {Name: "workers of a relay", Digits: 0},
			{Name: "p99", Unit: "ms", Digits: 1}, {Name: "CPU of a relay", Unit: "%", Digits: 0}, {Name: "memory of a relay", Unit: "MiB", Digits: 0}, {Name: "verdict"},
		},
	})
	for _, o := range options {
		t.Add(o.relays, o.perService, o.m, o.p, o.cost.Workers, cell(o.p99), 100*o.cpu/q.cores, o.cost.Memory, o.verdict(q, best))
	}
}
