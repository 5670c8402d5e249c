package policy

import (
	"github.com/ringway/ringway/selection"
	"github.com/ringway/ringway/sims/internal/queueing"
)

// RoundRobin picks workers in turn; each client starts at a random worker.
var RoundRobin = queueing.Policy{Name: "round-robin", New: func(env queueing.Env) queueing.Client {
	return &roundRobin{peers: peers[struct{}]{rand: env.Rand}, next: env.Rand.IntN(1 << 20)}
}}

type roundRobin struct {
	passive
	peers[struct{}]
	next int
}

func (r *roundRobin) Pick(selection.Instant) queueing.Ticket {
	r.next++
	return r.list[r.next%len(r.list)].ticket()
}

func (*roundRobin) Done(queueing.Ticket, queueing.Answer) {}

// Random picks a random worker by weight.
var Random = queueing.Policy{Name: "random", New: func(env queueing.Env) queueing.Client {
	return &random{peers: peers[struct{}]{rand: env.Rand}}
}}

type random struct {
	passive
	peers[struct{}]
}

func (r *random) Pick(selection.Instant) queueing.Ticket { return r.draw().ticket() }

func (*random) Done(queueing.Ticket, queueing.Answer) {}

// EWMA picks the faster of two workers by the average latency of their answers, failures
// included. The average is a plain EWMA: only a new answer changes it, time does not.
var EWMA = queueing.Policy{Name: "ewma", New: func(env queueing.Env) queueing.Client {
	return &ewma{peers: peers[float64]{rand: env.Rand}}
}}

type ewma struct {
	passive
	peers[float64] // ns; 0 is unknown, so that workers without answers are tried first
}

func (e *ewma) Pick(selection.Instant) queueing.Ticket {
	a, b := e.pair()
	if b.known < a.known {
		a = b
	}
	return a.ticket()
}

func (e *ewma) Done(t queueing.Ticket, a queueing.Answer) {
	const alpha = 0.2
	average := e.of(t)
	if average == nil {
		return
	}
	took := float64(a.Now - a.Start)
	if *average == 0 {
		*average = took
	}
	*average += alpha * (took - *average)
}

// LeastRequest picks the one of two workers with fewer of the client's requests in flight.
var LeastRequest = queueing.Policy{Name: "least-request", New: func(env queueing.Env) queueing.Client {
	return &leastRequest{peers: peers[int]{rand: env.Rand}}
}}

type leastRequest struct {
	passive
	peers[int]
}

func (l *leastRequest) Pick(selection.Instant) queueing.Ticket {
	a, b := l.pair()
	if b.known < a.known {
		a = b
	}
	a.known++
	return a.ticket()
}

func (l *leastRequest) Done(t queueing.Ticket, _ queueing.Answer) {
	if out := l.of(t); out != nil {
		*out--
	}
}

// Omniscient picks the worker of the range with the shortest expected delay, from the real
// queues, speeds and failures of all workers.
var Omniscient = queueing.Policy{Name: "omniscient", New: func(env queueing.Env) queueing.Client {
	return &omniscient{peers: peers[struct{}]{rand: env.Rand}, fleet: env.Fleet}
}}

type omniscient struct {
	passive
	peers[struct{}]
	fleet *queueing.Fleet
}

func (o *omniscient) Pick(selection.Instant) queueing.Ticket {
	// The random start spreads ties over the workers.
	first := o.rand.IntN(len(o.list))
	best, shortest := o.list[first], o.fleet.ExpectedDelay(int(o.list[first].worker))
	for i := 1; i < len(o.list); i++ {
		p := o.list[(first+i)%len(o.list)]
		if delay := o.fleet.ExpectedDelay(int(p.worker)); delay < shortest {
			best, shortest = p, delay
		}
	}
	return best.ticket()
}

func (*omniscient) Done(queueing.Ticket, queueing.Answer) {}
