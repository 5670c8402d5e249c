package policy

import (
	"github.com/ringway/ringway/selection"
	"github.com/ringway/ringway/sims/internal/queueing"
)

// EWMA takes of two workers the one whose answers were faster, failures and all: the average
// of the textbook, which nothing but a new answer changes.
var EWMA = queueing.Policy{Name: "ewma", New: func(env queueing.Env) queueing.Client {
	return &ewma{peers: peers[float64]{rand: env.Rand}}
}}

type ewma struct {
	passive
	peers[float64] // ns; 0 is unknown, so that the unknown is tried
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
