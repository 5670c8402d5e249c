package policy

import (
	"github.com/ringway/ringway/selection"
	"github.com/ringway/ringway/sims/internal/queueing"
)

// LeastRequest takes of two workers the one with fewer of the client's requests in flight.
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
