package policy

import (
	"github.com/ringway/ringway/selection"
	"github.com/ringway/ringway/sims/internal/queueing"
)

// RoundRobin takes one after the other, every client starting elsewhere.
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

// Random takes any.
var Random = queueing.Policy{Name: "random", New: func(env queueing.Env) queueing.Client {
	return &random{peers: peers[struct{}]{rand: env.Rand}}
}}

type random struct {
	passive
	peers[struct{}]
}

func (r *random) Pick(selection.Instant) queueing.Ticket { return r.draw().ticket() }

func (*random) Done(queueing.Ticket, queueing.Answer) {}
