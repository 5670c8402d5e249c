package policy

import (
	"github.com/ringway/ringway/selection"
	"github.com/ringway/ringway/sims/internal/queueing"
)

// Omniscient takes the worker of the range where the request will be answered soonest,
// knowing every queue, every speed and who is failing.
var Omniscient = queueing.Policy{Name: "omniscient", New: func(env queueing.Env) queueing.Client {
	return &omniscient{peers: peers[struct{}]{rand: env.Rand}, fleet: env.Fleet}
}}

type omniscient struct {
	passive
	peers[struct{}]
	fleet *queueing.Fleet
}

func (o *omniscient) Pick(selection.Instant) queueing.Ticket {
	// From anywhere, so that ties do not all go to the same.
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
