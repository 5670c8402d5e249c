package queueing

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ringway/ringway/selection"
)

// Config configures one run.
type Config struct {
	Topology Topology
	Scenario Scenario
	Policy   Policy
	// Load is the rate of arrivals as a share of capacity, above 0.
	Load float64
	Seed uint64
	// Ranges, if not nil, replaces the clients' ranges of Topology.
	Ranges [][]Endpoint
	// Traffic is the part of the arrivals that each client gets, in any unit; nil gives all the
	// same.
	Traffic []float64
	// Script lists further events, in the order of time.
	Script []Step
	// Callers adds timeouts and retries; nil means neither.
	Callers *Callers
	// QueueBound is how many requests may wait at a worker; further requests are shed. 0
	// is the default of 128, the only value allowed with a policy that probes.
	QueueBound int
	// Measured replaces the work and the arrivals of the scenario by measured ones.
	Measured Measured
	// Slots is how many requests a worker serves at a time. 0 is the default of 4, the only
	// value allowed with a policy that probes.
	Slots int
	// Warmup is the time from the start that is not measured, 0 for the constant Warmup. A
	// fleet with long requests needs more.
	Warmup selection.Instant
}

// Measured holds measurements of a real fleet.
type Measured struct {
	// Service lists service times. The work of each request is drawn from them; nil draws
	// from the distribution of the scenario.
	Service []time.Duration
	// Mean is the mean of the work; 0 is that of Service, or MeanService without Service.
	// Another mean without Service scales the distribution of the scenario.
	Mean time.Duration
	// Gaps lists times between arrivals, with a mean of 1. They are replayed in their order
	// from a random one on, at the rate of the run; nil is a Poisson process.
	Gaps []float64
}

// mean returns the mean of the work.
func (m *Measured) mean() time.Duration {
	switch {
	case m.Mean > 0:
		return m.Mean
	case len(m.Service) == 0:
		return MeanService
	}
	sum := 0.0
	for _, s := range m.Service {
		sum += float64(s)
	}
	return time.Duration(sum / float64(len(m.Service)))
}

// demand draws the work in a request, in ns.
func (c *Config) demand(random *rand.Rand) float32 {
	if service := c.Measured.Service; len(service) > 0 {
		return float32(service[random.IntN(len(service))])
	}
	work := c.Scenario.demand(random)
	if mean := c.Measured.Mean; mean > 0 {
		work *= float32(mean) / float32(MeanService)
	}
	return work
}

// stream returns a stream of random numbers of the run. Separate streams keep the arrivals
// equal for policies that draw different amounts of random numbers.
func (c *Config) stream(n uint64) *rand.Rand { return rand.New(rand.NewPCG(c.Seed, n)) }

// SlowFactors returns how many times slower than normal each worker is at the start.
func (c *Config) SlowFactors() []float64 {
	out := make([]float64, c.Topology.Workers)
	slow := int(math.Round(c.Scenario.SlowShare * float64(len(out))))
	for i, n := range c.stream(4).Perm(len(out)) {
		out[n] = 1
		if i < slow {
			out[n] = c.Scenario.SlowBy
		}
	}
	return out
}

// Work returns the work of the first n requests, as the time that a worker of normal speed
// needs for it.
func (c *Config) Work(n int) []time.Duration {
	random, out := c.stream(2), make([]time.Duration, n)
	for i := range out {
		out[i] = time.Duration(c.demand(random))
	}
	return out
}

// Step is one event of a script. Do runs at the first Refresh at or after At.
type Step struct {
	At selection.Instant
	Do func(*Fleet)
}

// Fleet is a run in progress.
type Fleet struct {
	Config
	now      selection.Instant
	workers  []worker
	clients  []Client
	victim   int
	rate     float64 // arrivals per ns
	gap      int     // of Measured.Gaps, the next one
	mean     time.Duration
	sending  []int     // clients that receive arrivals
	parts    []float64 // with Traffic: the parts of sending, each added to those before
	result   Result
	watched  int64 // requests sent during Scenario.Watch; toVictim is how many went to the victim
	toVictim int64

	arrivals, work, failures *rand.Rand

	requests  []request
	free      []int32
	toWorker  queue[event]
	toClient  queue[event]
	running   timetable
	arrival   selection.Instant
	tick      selection.Instant
	turnsDone int
	stepsDone int

	callers callers
}

// request is a request or a probe on its way from the client to the worker and back.
type request struct {
	ticket  Ticket
	client  int32
	load    int32 // of the worker: on arrival, after completion the reported load
	work    float32
	outcome Outcome
	failing bool
	probe   bool
	start   selection.Instant
	reached selection.Instant // arrival at the worker
	trial   trial
}

const never = selection.Instant(math.MaxInt64)

// Run simulates one fleet until every request has its answer.
func Run(cfg Config) (Result, error) {
	f := &Fleet{Config: cfg, result: newResult()}
	if err := f.build(); err != nil {
		return Result{}, err
	}
	for f.step() {
	}
	for _, c := range f.clients {
		f.result.Evictions += c.Evictions()
	}
	f.callers.finish(&f.result)
	if f.watched > 0 {
		fair := float64(f.watched) / float64(len(f.workers))
		f.result.VictimShares = []float64{float64(f.toVictim) / fair}
	}
	return f.result, nil
}

func (f *Fleet) build() error {
	if !(f.Load > 0) {
		return fmt.Errorf("queueing: load is %v; allowed is more than 0", f.Load)
	}
	ranges := f.Ranges
	if ranges == nil {
		var err error
		if ranges, err = f.Topology.ranges(f.Topology.Workers); err != nil {
			return err
		}
	}
	if f.QueueBound == 0 {
		f.QueueBound = QueueBound
	}
	if f.Slots == 0 {
		f.Slots = Slots
	}
	if f.Warmup == 0 {
		f.Warmup = Warmup
	}
	f.mean = f.Measured.mean()
	f.arrivals, f.work, f.failures = f.stream(1), f.stream(2), f.stream(3)
	for _, slow := range f.SlowFactors() {
		f.workers = append(f.workers, worker{slow: slow, turn: Turn{Slow: 1}})
	}
	covered := make([]int, len(f.workers))
	for _, endpoints := range ranges {
		for _, e := range endpoints {
			covered[e.Worker]++
		}
	}
	f.victim = -1
	for i, w := range f.workers {
		if covered[i] > 0 {
			f.rate += f.Load * float64(f.Slots) / (w.slow * float64(f.mean))
		}
		if w.slow == 1 && (f.victim < 0 || covered[i] > covered[f.victim]) {
			f.victim = i
		}
	}
	least := (f.Topology.Workers + f.Topology.Clients - 1) / f.Topology.Clients
	all := make([]int, len(ranges))
	for i, endpoints := range ranges {
		c := f.Policy.New(Env{Index: i, MinEffective: least, Rand: f.stream(100 + uint64(i)), Fleet: f})
		c.Update(endpoints, 0)
		f.clients = append(f.clients, c)
		all[i] = i
	}
	if f.Traffic != nil && (len(f.Traffic) != len(ranges) || !(slices.Min(f.Traffic) > 0)) {
		return fmt.Errorf("queueing: Traffic has %d parts for %d clients; each client needs one above 0", len(f.Traffic), len(ranges))
	}
	f.Send(all)
	f.callers.build(f)
	if _, probing := f.clients[0].(Prober); probing {
		if f.QueueBound != QueueBound || f.Slots != Slots {
			return fmt.Errorf("queueing: QueueBound is %d and Slots %d; %s probes, and allowed are %d and %d, or 0 for these", f.QueueBound, f.Slots, f.Policy.Name, QueueBound, Slots)
		}
		for i := range f.workers {
			f.workers[i].recent = new(recentLatencies)
		}
	}
	if n := len(f.Measured.Gaps); n > 0 {
		f.gap = f.stream(6).IntN(n)
	}
	f.arrive()
	return nil
}

// arrive draws the time of the next arrival.
func (f *Fleet) arrive() {
	rate := f.rate
	if rush := f.Scenario.Rush; rush.at(f.arrival) {
		rate *= rush.Factor
	}
	if gaps := f.Measured.Gaps; len(gaps) > 0 {
		f.arrival += selection.Instant(gaps[f.gap] / rate)
		f.gap = (f.gap + 1) % len(gaps)
	} else {
		f.arrival += selection.Instant(f.arrivals.ExpFloat64() / rate)
	}
	if f.arrival >= f.Scenario.End {
		f.arrival = never
	}
}

// step processes the next event and reports false if there is none.
func (f *Fleet) step() bool {
	next, do := f.arrival, (*Fleet).send
	earlier := func(at selection.Instant, what func(*Fleet)) {
		if at < next {
			next, do = at, what
		}
	}
	if f.toWorker.len() > 0 {
		earlier(f.toWorker.front().at, (*Fleet).reach)
	}
	if len(f.running) > 0 {
		earlier(f.running[0].at, (*Fleet).complete)
	}
	if f.toClient.len() > 0 {
		earlier(f.toClient.front().at, (*Fleet).answer)
	}
	if f.callers.timeouts.len() > 0 {
		earlier(f.callers.timeouts.front().at, (*Fleet).giveUp)
	}
	if len(f.callers.waiting) > 0 {
		earlier(f.callers.waiting[0].at, (*Fleet).again)
	}
	if next == never {
		return false
	}
	earlier(f.tick, (*Fleet).refresh)
	f.now = next
	do(f)
	return true
}

// refresh applies due turns, steps and joins, and refreshes all clients.
func (f *Fleet) refresh() {
	for turns := f.Scenario.Turns; f.turnsDone < len(turns) && turns[f.turnsDone].At <= f.now; f.turnsDone++ {
		f.workers[f.victim].turn = turns[f.turnsDone]
	}
	for ; f.stepsDone < len(f.Script) && f.Script[f.stepsDone].At <= f.now; f.stepsDone++ {
		f.Script[f.stepsDone].Do(f)
	}
	if join := f.Scenario.Join; join > 0 && join <= f.now && len(f.workers) == f.Topology.Workers {
		f.join()
	}
	for _, c := range f.clients {
		c.Refresh(f.now)
	}
	f.callers.refresh(f.now)
	f.tick += RefreshEvery
}

func (f *Fleet) join() {
	f.victim = len(f.workers)
	joiner := worker{slow: 1, turn: Turn{Slow: 1}, joined: f.now}
	if f.workers[0].recent != nil {
		joiner.recent = new(recentLatencies)
	}
	f.workers = append(f.workers, joiner)
	ranges, err := f.Topology.ranges(len(f.workers))
	if err != nil {
		panic(err) // cannot happen: the topology was valid with one worker less
	}
	for i, c := range f.clients {
		c.Update(ranges[i], f.now)
	}
}

// send processes the arrival of a request at a client.
func (f *Fleet) send() {
	client := f.sender()
	r := request{client: int32(client), start: f.now, work: f.demand(f.work), failing: f.failures.Float64() < f.Scenario.Background}
	f.arrive()
	f.callers.begin(f, &r)
	f.attempt(r)
}

// sender draws the client of an arrival.
func (f *Fleet) sender() int {
	if f.parts == nil {
		return f.sending[f.arrivals.IntN(len(f.sending))]
	}
	last := len(f.parts) - 1
	at, _ := slices.BinarySearch(f.parts[:last], f.arrivals.Float64()*f.parts[last])
	return f.sending[at]
}

// demand draws the work in a request, in ns.
func (s *Scenario) demand(random *rand.Rand) float32 {
	if s.Bimodal {
		if random.IntN(10) == 0 {
			return float32(137_500 * time.Microsecond)
		}
		return float32(12_500 * time.Microsecond)
	}
	return float32(float64(MeanService) * math.Exp(random.NormFloat64()-0.5))
}

// Probe sends a load probe to a worker; the answer goes to Prober.Probed of the client.
func (f *Fleet) Probe(client, worker int) {
	f.launch(request{client: int32(client), ticket: Ticket{Worker: int32(worker)}, probe: true})
}

// Turn changes a worker's speed or makes it fail. For scripts.
func (f *Fleet) Turn(worker int, t Turn) { f.workers[worker].turn = t }

// Range replaces the range of a client. For scripts.
func (f *Fleet) Range(client int, endpoints []Endpoint) { f.clients[client].Update(endpoints, f.now) }

// Send limits arrivals to these clients. For scripts.
func (f *Fleet) Send(clients []int) {
	f.sending, f.parts = slices.Clone(clients), nil
	if f.Traffic == nil {
		return
	}
	sum := 0.0
	for _, c := range clients {
		sum += f.Traffic[c]
		f.parts = append(f.parts, sum)
	}
}

// ExpectedDelay returns how long one more request would take at a worker, in ns, counting
// the requests still on the network; infinite while the worker fails.
func (f *Fleet) ExpectedDelay(worker int) float64 {
	w := &f.workers[worker]
	if w.turn.Failing {
		return math.Inf(1)
	}
	ahead := max(0, w.assigned+1-f.Slots)
	return float64(f.mean) * w.factor(f.now) * (1 + float64(ahead)/float64(f.Slots))
}
