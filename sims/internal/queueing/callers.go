package queueing

import (
	"math/rand/v2"
	"time"

	"github.com/ringway/ringway/selection"
)

// Callers sends the requests with timeouts and retries.
type Callers struct {
	// Timeout of one attempt. The caller then cancels the attempt; the worker is not
	// notified and serves the request nevertheless.
	Timeout time.Duration
	// Attempts per request, 1 for no retry.
	Attempts int
	// Backoff before the first retry, doubled for each further retry, times a random factor
	// from 0.5 to 1.5.
	Backoff time.Duration
	// Budgeted takes retries from one selection.RetryBudget per client, with Share and Savings;
	// otherwise only Attempts limits retries.
	Budgeted bool
	Share    float64
	Savings  int
	// MaxInFlight is how many attempts a client may have in flight; further attempts are
	// refused immediately and never reach a worker. 0 means no limit.
	MaxInFlight int
	// Gate returns the limiter of a client, applied in addition to MaxInFlight. nil means
	// no limiter.
	Gate func(client int) Gate
}

// Gate decides which attempts a client accepts. A gate is called from one goroutine.
type Gate interface {
	// Enter reports whether one more attempt is accepted.
	Enter(now selection.Instant) bool
	// Answered, Left and GaveUp end an accepted attempt: with a successful answer, with a
	// failure, and after the timeout of the caller.
	Answered(took time.Duration, now selection.Instant)
	Left()
	GaveUp(waited time.Duration)
	// Refresh is called every 250 ms.
	Refresh(now selection.Instant)
}

// Second counts the requests of one second of a run with callers. A request counts in the
// second in which it began.
type Second struct {
	Requests int // begun
	Served   int // of Requests: answered in time, on any attempt
	Attempts int // in this second, including refused ones
	Refused  int // of Attempts: refused by a client at its limit
	Wasted   int // answers in this second that came after the timeout of the attempt
}

// trial is the state of the current attempt of a request.
type trial struct {
	serial  uint64 // number of the attempt, so that the timeout of an old attempt is ignored
	first   selection.Instant
	attempt int
	gone    bool // the attempt has timed out
}

// callers is the state of Callers; the zero value has no effect.
type callers struct {
	chance   *rand.Rand
	budgets  []*selection.RetryBudget
	inFlight []int
	gates    []Gate // by client; nil without Callers.Gate
	timeouts queue[timeout]
	waiting  timetable // requests in backoff, by the time of the next attempt
	serial   uint64
	seconds  []Second
}

// timeout is the end of the wait for an attempt. All waits are equally long, so timeouts
// expire in the order of the attempts.
type timeout struct {
	at      selection.Instant
	request int32
	serial  uint64
}

func (c *callers) build(f *Fleet) {
	if f.Callers == nil {
		return
	}
	c.chance = rand.New(rand.NewPCG(f.Seed, 5))
	c.inFlight = make([]int, len(f.clients))
	if f.Callers.Gate != nil {
		for i := range f.clients {
			c.gates = append(c.gates, f.Callers.Gate(i))
		}
	}
	c.seconds = make([]Second, int(f.Scenario.End/selection.Instant(time.Second))+1)
	if f.Callers.Budgeted {
		for range f.clients {
			c.budgets = append(c.budgets, selection.NewRetryBudget(f.Callers.Share, f.Callers.Savings))
		}
	}
}

func (c *callers) finish(r *Result) { r.Seconds = c.seconds }

// at returns the second of an instant; everything after the last arrival counts in the last
// second.
func (c *callers) at(i selection.Instant) *Second {
	return &c.seconds[min(int(i/selection.Instant(time.Second)), len(c.seconds)-1)]
}

// begin registers a new request.
func (c *callers) begin(f *Fleet, r *request) {
	if f.Callers == nil {
		return
	}
	r.trial = trial{first: f.now, attempt: 1}
	c.at(f.now).Requests++
	if c.budgets != nil {
		c.budgets[r.client].Earn()
	}
}

// refuses counts an attempt and reports whether the client refuses it.
func (c *callers) refuses(f *Fleet, r *request) bool {
	if f.Callers == nil {
		return false
	}
	r.start = f.now
	now := c.at(f.now)
	now.Attempts++
	most := f.Callers.MaxInFlight
	if most > 0 && c.inFlight[r.client] >= most || c.gates != nil && !c.gates[r.client].Enter(f.now) {
		now.Refused++
		c.failed(f, *r)
		return true
	}
	c.inFlight[r.client]++
	return false
}

// wait starts the timeout of an attempt.
func (c *callers) wait(f *Fleet, id int32) {
	if f.Callers == nil {
		return
	}
	c.serial++
	f.requests[id].trial.serial = c.serial
	c.timeouts.push(timeout{f.now + selection.Instant(f.Callers.Timeout), id, c.serial})
}

// giveUp processes the next timeout, which fails an attempt without an answer.
func (f *Fleet) giveUp() {
	t := f.callers.timeouts.pop()
	r := &f.requests[t.request]
	if r.trial.serial != t.serial || r.trial.gone {
		return
	}
	r.trial.gone = true
	f.callers.inFlight[r.client]--
	if f.callers.gates != nil {
		f.callers.gates[r.client].GaveUp(time.Duration(f.now - r.start))
	}
	f.clients[r.client].Done(r.ticket, Answer{Outcome: Failure, Start: r.start, Now: f.now})
	f.callers.failed(f, *r)
}

// answered processes an answer, possibly to an attempt that has timed out.
func (c *callers) answered(f *Fleet, client Client, r request) {
	f.requests[f.free[len(f.free)-1]].trial.serial = 0 // the attempt is over
	if r.trial.gone {
		c.at(f.now).Wasted++
		return
	}
	c.inFlight[r.client]--
	if c.gates != nil {
		if r.outcome == Success {
			c.gates[r.client].Answered(time.Duration(f.now-r.start), f.now)
		} else {
			c.gates[r.client].Left()
		}
	}
	client.Done(r.ticket, Answer{Outcome: r.outcome, Load: int(r.load), Start: r.start, Now: f.now})
	if r.outcome != Success {
		c.failed(f, r)
		return
	}
	c.at(r.trial.first).Served++
	if r.trial.first >= f.Warmup {
		f.result.Requests++
		f.result.served(time.Duration(f.now - r.trial.first))
	}
}

// failed schedules a retry of a failed attempt, or counts the request as failed.
func (c *callers) failed(f *Fleet, r request) {
	if r.trial.attempt >= f.Callers.Attempts || c.budgets != nil && !c.budgets[r.client].Spend() {
		if r.trial.first >= f.Warmup {
			f.result.Requests++
			f.result.Failed++
		}
		return
	}
	pause := float64(f.Callers.Backoff) * float64(int(1)<<min(r.trial.attempt-1, 20)) * (0.5 + c.chance.Float64())
	r.trial = trial{first: r.trial.first, attempt: r.trial.attempt + 1}
	c.waiting.push(event{f.now + selection.Instant(pause), f.keep(r)})
}

func (c *callers) refresh(now selection.Instant) {
	for _, g := range c.gates {
		g.Refresh(now)
	}
}

// again starts the next attempt of a failed request.
func (f *Fleet) again() {
	id := f.callers.waiting.pop().request
	f.free = append(f.free, id)
	f.attempt(f.requests[id])
}

// Client chooses workers for the requests of one relay.
type Client interface {
	// Update replaces the range; the statistics of workers that stay are kept.
	Update(endpoints []Endpoint, now selection.Instant)
	Pick(now selection.Instant) Ticket
	// Done ends the request of a ticket with its answer.
	Done(t Ticket, a Answer)
	// Refresh is called every 250 ms.
	Refresh(now selection.Instant)
	// Evictions counts how often the client stopped using a worker.
	Evictions() int
}

// Prober is a client that also probes the load of workers; see [Fleet.Probe].
type Prober interface {
	Client
	Probed(p Probe, now selection.Instant)
}

// Endpoint is one worker in a range, with the worker's share of the client's traffic.
type Endpoint struct {
	Worker int
	Weight float64
	Tier   uint8 // 0 is nearest; only the policies of Ringway use the tier
}

// Ticket names the worker of a request; Handle is private to the client.
type Ticket struct {
	Worker int32
	Handle uint32
}

// Outcome is how a request ended.
type Outcome uint8

const (
	Success Outcome = iota
	Failure         // the worker failed the request
	Shed            // the queue of the worker was full
)

// Answer is the result of a request, as the client sees it.
type Answer struct {
	Outcome Outcome
	// Load is the number of other requests at the worker when the answer left; negative if
	// the worker does not report its load.
	Load       int
	Start, Now selection.Instant
}

// Probe is a worker's answer to a probe.
type Probe struct {
	Worker int
	// Load is the number of requests at the worker. Latency is the median, in ns, of recent
	// requests that arrived at about that load, 0 if there are none.
	Load    int
	Latency float64
}

// Policy creates the clients of one run.
type Policy struct {
	Name string
	New  func(Env) Client
}

// Env is the environment of a client.
type Env struct {
	Index int // of the client
	// MinEffective is how many workers of its range a client must use at any rate of
	// requests, so that all clients together use every worker: ⌈workers/clients⌉.
	MinEffective int
	Rand         *rand.Rand // used by this client only
	Fleet        *Fleet     // for the omniscient policy, and for probes
}
