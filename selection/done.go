package selection

import (
	"math"
	"time"
)

// Answered reports that the head of the answer has arrived, possibly long before its
// end. Statistics are updated now: the time since the pick is the latency of a Success,
// a failure or a shed counts, a load report is recorded, and an endpoint that was tried
// after an eviction is readmitted. The request stays in flight until Done gets the
// ticket that Answered returns, which replaces p. Call Answered if a body may take long;
// without it Done updates the statistics. With Cancelled, or for a ticket that is
// already answered, nothing happens.
func (b *Balancer) Answered(p Pick, now Instant, o Outcome) Pick {
	if p.state == nil || p.is == answered || o.Kind() == Cancelled {
		return p
	}
	p.state.streaming.Add(1)
	b.learn(p, now, o)
	p.is = answered
	return p
}

// Done gives back a ticket. It must be called exactly once for every Pick and
// Take without an error.
//
// The time since the pick is the latency sample of a Success. After Answered only a
// Failure counts, because a body that breaks off is a failure; every other outcome was
// recorded when the head arrived.
func (b *Balancer) Done(p Pick, now Instant, o Outcome) {
	if p.state == nil {
		return
	}
	s := p.state
	s.done.Add(1)
	if o.Kind() != Full && s.full.Load() != 0 {
		s.full.Store(0) // a place is free
	}
	if p.is == answered {
		s.streaming.Add(-1)
		if o.Kind() != Failure {
			return
		}
	}
	b.learn(p, now, o)
}

// learn updates the statistics of the endpoint with an outcome.
func (b *Balancer) learn(p Pick, now Instant, o Outcome) {
	s := p.state
	t := now.tick()
	switch o.Kind() {
	case Success:
		storeTick(&s.silenceTick, t)
		median, _ := unpackPair(b.medians.Load())
		s.succeeded(time.Duration(now-p.start), t, b.alpha, median)
		if load, ok := o.load(); ok {
			s.takeReport(load, t, b.alpha)
		} else {
			s.answeredWithoutReport(t)
		}
		s.count(0, t)
		s.tier.Load().count(0)
		if p.is == probing {
			b.readmitProbed(p.entry, now)
		}
	case Failure:
		if o.silent() {
			median, _ := unpackPair(b.medians.Load())
			s.unanswered(t, median)
		} else {
			storeTick(&s.silenceTick, t)
		}
		consecutive := s.failed(t)
		failures, requests := s.count(1, t)
		tier := s.tier.Load()
		failing := tier.count(1)
		if p.is == probing {
			b.evictProbed(p.entry, now)
		} else if phase(s.phase.Load()) == active && b.suspect(consecutive, failures, requests) && !b.table.Load().full.has(p.entry.Tier) {
			record := record{consecutive, failures, requests, failing, tier.otherShare()}
			if cause, reason := b.evictionReason(record, b.others(p.entry, t)); cause != "" {
				b.evict(p.entry, now, cause, reason)
			}
		}
	case Shed, Full:
		if o.Kind() == Full {
			s.refused(t)
		}
		storeTick(&s.silenceTick, t)
		if load, ok := o.load(); ok {
			s.takeReport(load, t, b.alpha)
		} else {
			v := b.view(now)
			s.shedWithoutReport(&v)
		}
	}
	if p.is == probing {
		s.probing.Store(0)
	}
}

// Outcome is how a request ended, for a [Balancer], a pool of relays and a circuit. The zero
// value is [Cancelled].
type Outcome uint64

const (
	// Cancelled: the caller cancelled the request. No statistic changes except the count
	// of requests in flight.
	Cancelled Outcome = iota
	// Success: the endpoint answered. Its latency counts.
	Success
	// Failure: the endpoint did not answer, or its answer shows that it is broken. A
	// failure never improves a latency: an endpoint that fails fast must not look fast.
	Failure
	// Shed: the endpoint refused because it is busy (429, or 503 marked as load). Shed is
	// a load signal, neither a failure nor a latency sample.
	Shed
	// Full: the endpoint refused because it is at its request limit. Full has the effects
	// of Shed; in addition, an endpoint with a Limit is passed over for a short time.
	Full

	outcomeKind    Outcome = 1<<8 - 1
	outcomeHasLoad Outcome = 1 << 8
	outcomeSilent  Outcome = 1 << 9
)

// WithoutAnswer marks a Failure in which the endpoint gave no sign of life, such as a
// timeout of an attempt. Failures with a sign of life, such as a 500 or a refused
// connection, end the silence of an endpoint. A silence of more than twice the latency
// raises the latency.
func (o Outcome) WithoutAnswer() Outcome { return o | outcomeSilent }

// WithLoad adds the number of requests that the endpoint reported in flight, without the
// answered one. Only Success, Shed and Full use it. Negative numbers count as 0.
func (o Outcome) WithLoad(inFlight int) Outcome {
	load := Outcome(min(max(inFlight, 0), math.MaxInt32))
	return o&outcomeKind | outcomeHasLoad | load<<32
}

// Kind returns the outcome without what [Outcome.WithLoad] and [Outcome.WithoutAnswer] added.
func (o Outcome) Kind() Outcome { return o & outcomeKind }

func (o Outcome) silent() bool { return o&outcomeSilent != 0 }

func (o Outcome) load() (float32, bool) { return float32(o >> 32), o&outcomeHasLoad != 0 }
