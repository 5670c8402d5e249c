package selection

import (
	"math"
	"time"
)

func (b *core) answered(p ticket, now Instant, r Result) ticket {
	if p.state == nil || p.is == answered || r.Outcome == Cancelled {
		return p
	}
	p.state.streaming.Add(1)
	b.learn(p, now, r)
	p.is = answered
	return p
}

func (b *core) done(p ticket, now Instant, r Result) {
	if p.state == nil {
		return
	}
	s := p.state
	s.done.Add(1)
	if r.Outcome != Full && s.full.Load() != 0 {
		s.full.Store(0) // a place is free
	}
	if p.is == answered {
		s.streaming.Add(-1)
		if !r.Outcome.failed() {
			return
		}
	}
	b.learn(p, now, r)
}

// learn updates the statistics of the endpoint.
func (b *core) learn(p ticket, now Instant, r Result) {
	s := p.state
	t := now.tick()
	switch r.Outcome {
	case Success:
		storeTick(&s.silenceTick, t)
		median, _ := unpackPair(b.medians.Load())
		s.succeeded(time.Duration(now-p.start), t, b.alpha, median)
		if r.HasLoad {
			s.takeReport(r.load(), t, b.alpha)
		} else {
			s.answeredWithoutReport(t)
		}
		s.count(0, t)
		s.tier.Load().count(0)
		if p.is == probing {
			b.readmitProbed(p.entry, now)
		}
	case Failure, NoAnswer:
		if r.Outcome == NoAnswer {
			median, _ := unpackPair(b.medians.Load())
			s.unanswered(t, median)
		} else {
			storeTick(&s.silenceTick, t)
		}
		s.failed(t)
		s.count(1, t)
		s.tier.Load().count(1)
		if p.is == probing {
			b.evictProbed(p.entry, now)
		} else {
			b.evictIfFailing(p.entry, s.record(t), now)
		}
	case Shed, Full:
		if r.Outcome == Full {
			s.refused(t)
		}
		storeTick(&s.silenceTick, t)
		if r.HasLoad {
			s.takeReport(r.load(), t, b.alpha)
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
type Outcome uint8

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
	// NoAnswer is a Failure in which the endpoint gave no sign of life, such as a timeout of
	// an attempt. Failures with a sign of life, such as a 500 or a refused connection, end the
	// silence of an endpoint. A silence of more than twice the latency raises the latency.
	NoAnswer
)

// failed reports whether the outcome is a failure of the endpoint.
func (o Outcome) failed() bool { return o == Failure || o == NoAnswer }

// Result is how a request ended, with what the endpoint reported at its end.
type Result struct {
	Outcome Outcome
	// Load is the number of requests that the endpoint reported in flight, without the answered
	// one, valid only if HasLoad. Only Success, Shed and Full use it. Negative numbers count as 0.
	Load    int
	HasLoad bool
}

// load returns Load as the statistics keep it.
func (r Result) load() float32 { return float32(min(max(r.Load, 0), math.MaxInt32)) }
