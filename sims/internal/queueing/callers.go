package queueing

import (
	"math/rand/v2"
	"time"

	"github.com/ringway/ringway/selection"
	"github.com/ringway/ringway/selection/budget"
)

// Callers are what sends the requests, where it does not take every answer as it comes.
type Callers struct {
	// Timeout of one attempt. The caller then gives up on it; the worker does not know
	// and serves it all the same.
	Timeout time.Duration
	// Attempts per request, 1 for no retry.
	Attempts int
	// Backoff before the first retry, doubled for each further one, times 0.5 to 1.5 by
	// chance.
	Backoff time.Duration
	// Budgeted retries are paid from a budget.Budget for each client, of Share and Savings;
	// otherwise nothing but Attempts bounds them.
	Budgeted bool
	Share    float64
	Savings  int
	// MaxInFlight is how many attempts a client carries at a time; more are refused at
	// once, without reaching a worker. 0 is no bound.
	MaxInFlight int
	// Gate makes what else decides how many attempts a client carries, nil for nothing.
	Gate func(client int) Gate
}

// Gate decides which attempts a client takes. It is called from one goroutine.
type Gate interface {
	// Enter reports whether one more attempt is taken.
	Enter(now selection.Instant) bool
	// Answered, Left and GaveUp end an attempt that was taken: with an answer, a failure,
	// or because its caller gave up.
	Answered(took time.Duration, now selection.Instant)
	Left()
	GaveUp(waited time.Duration)
	// Refresh is called every 250 ms.
	Refresh(now selection.Instant)
}

// Second is what happened in one second of a run with callers. A request counts where it
// began.
type Second struct {
	Requests int // begun
	Served   int // of these, answered in time, at whichever attempt
	Attempts int // made in this second, refused ones included
	Refused  int // of these, by a client that carries too many
	Wasted   int // answers in this second that nobody waited for any more
}

// trial is what a request knows of its caller.
type trial struct {
	serial  uint64 // of the attempt, so that an old timeout finds nothing
	first   selection.Instant
	attempt int
	gone    bool // the caller has given up on the attempt
}

// callers is the state of Callers; the zero value does nothing.
type callers struct {
	chance   *rand.Rand
	budgets  []*budget.Budget
	inFlight []int
	gates    []Gate // nil without
	patience queue[timeout]
	waiting  timetable // for the next attempt
	serial   uint64
	seconds  []Second
}

// timeout is when a caller gives up on an attempt. All take equally long.
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
			c.budgets = append(c.budgets, budget.New(f.Callers.Share, f.Callers.Savings))
		}
	}
}

func (c *callers) finish(r *Result) { r.Seconds = c.seconds }

// at is the second of an instant; what comes after the last arrival is in the last one.
func (c *callers) at(i selection.Instant) *Second {
	return &c.seconds[min(int(i/selection.Instant(time.Second)), len(c.seconds)-1)]
}

// begin is a new request.
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

// refuses counts an attempt and reports whether the client does not take it.
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

// wait begins to wait for the answer of an attempt.
func (c *callers) wait(f *Fleet, id int32) {
	if f.Callers == nil {
		return
	}
	c.serial++
	f.requests[id].trial.serial = c.serial
	c.patience.push(timeout{f.now + selection.Instant(f.Callers.Timeout), id, c.serial})
}

// losePatience gives up on an attempt that has no answer yet.
func (f *Fleet) losePatience() {
	t := f.callers.patience.pop()
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

// answered is an answer, perhaps one that nobody waits for.
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
	if r.trial.first >= Warmup {
		f.result.Requests++
		f.result.served(time.Duration(f.now - r.trial.first))
	}
}

// failed is the end of an attempt that failed: the request is tried again, or lost.
func (c *callers) failed(f *Fleet, r request) {
	if r.trial.attempt >= f.Callers.Attempts || c.budgets != nil && !c.budgets[r.client].Spend() {
		if r.trial.first >= Warmup {
			f.result.Requests++
			f.result.Failed++
		}
		return
	}
	pause := float64(f.Callers.Backoff) * float64(int(1)<<min(r.trial.attempt-1, 20)) * (0.5 + c.chance.Float64())
	r.trial = trial{first: r.trial.first, attempt: r.trial.attempt + 1}
	c.waiting.push(event{f.now + selection.Instant(pause), f.keep(r)})
}

// refresh lets the gates judge.
func (c *callers) refresh(now selection.Instant) {
	for _, g := range c.gates {
		g.Refresh(now)
	}
}

// again is the next attempt of a request that failed.
func (f *Fleet) again() {
	id := f.callers.waiting.pop().request
	f.free = append(f.free, id)
	f.attempt(f.requests[id])
}
