package queueing

import (
	"math/rand/v2"

	"github.com/ringway/ringway/selection"
)

// Client chooses workers for the requests of one relay.
type Client interface {
	// Update replaces the range; what is known of workers that stay is kept.
	Update(endpoints []Endpoint, now selection.Instant)
	Pick(now selection.Instant) Ticket
	// Done gives a ticket back with the answer to its request.
	Done(t Ticket, a Answer)
	// Refresh is called every 250 ms.
	Refresh(now selection.Instant)
	// Evictions counts how often the client stopped using a worker.
	Evictions() int
}

// Prober is a client that also asks workers for their load; see [Fleet.Probe].
type Prober interface {
	Client
	Probed(p Probe, now selection.Instant)
}

// Endpoint is one worker in a range and the share of the client's traffic it should get.
type Endpoint struct {
	Worker int
	Weight float64
	Tier   uint8 // 0 is nearest; policies other than ours do not look at it
}

// Ticket says where a request goes; Handle is the client's own.
type Ticket struct {
	Worker int32
	Handle uint32
}

// Outcome is how a request ended.
type Outcome uint8

const (
	Success Outcome = iota
	Failure         // the worker is broken
	Shed            // the worker is full
)

// Answer is what a client learns from a request.
type Answer struct {
	Outcome Outcome
	// Load is the requests at the worker when the answer left, without this one; negative
	// when the worker does not say.
	Load       int
	Start, Now selection.Instant
}

// Probe is a worker's answer to a probe.
type Probe struct {
	Worker int
	// Load is the requests at the worker; Latency the median, in ns, of recent ones that
	// met about that load, 0 if there are none.
	Load    int
	Latency float64
}

// Policy makes the clients of one run.
type Policy struct {
	Name string
	New  func(Env) Client
}

// Env is what a client may use.
type Env struct {
	Index int // of the client
	// MinEffective is how many workers of its range a client must use, however little it
	// sends, so that with the others no worker is left out: ⌈workers/clients⌉.
	MinEffective int
	Rand         *rand.Rand // its own
	Fleet        *Fleet     // for the omniscient, and for probes
}
