package selection

import "time"

// Answered says that the head of the answer has come, perhaps long before its
// end. What there is to learn is learnt now: the time since the pick is the
// latency of a Success, a failure or a shed counts, a load report is taken, an
// endpoint that was tried after an eviction comes back. The request stays
// counted as in flight until Done gets the ticket that Answered returns, which
// replaces p. Calling it is worth the while where a body may take long; without
// it Done learns. With Cancelled, or for a ticket that is answered already,
// nothing happens.
func (b *Balancer) Answered(p Pick, now Instant, o Outcome) Pick {
	if p.state == nil || p.is == answered || o.kind() == Cancelled {
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
// The time since the pick is the latency sample of a Success. After Answered
// only a Failure counts, as that of a body that broke off; everything else has
// been learnt from the head.
func (b *Balancer) Done(p Pick, now Instant, o Outcome) {
	if p.state == nil {
		return
	}
	s := p.state
	s.done.Add(1)
	if o.kind() != Full && s.full.Load() != 0 {
		s.full.Store(0) // a place is free
	}
	if p.is == answered {
		s.streaming.Add(-1)
		if o.kind() != Failure {
			return
		}
	}
	b.learn(p, now, o)
}

// learn takes what the outcome says about the endpoint.
func (b *Balancer) learn(p Pick, now Instant, o Outcome) {
	s := p.state
	t := now.tick()
	switch o.kind() {
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
		if !o.silent() {
			storeTick(&s.silenceTick, t)
		}
		consecutive := s.failed(t)
		failures, requests := s.count(1, t)
		tier := s.tier.Load()
		failing := tier.count(1)
		if p.is == probing {
			b.evictProbed(p.entry, now)
		} else if phase(s.phase.Load()) == active && !b.table.Load().full.has(p.entry.Tier) {
			record := record{consecutive, failures, requests, failing, tier.others()}
			if cause, reason := b.evictionReason(record); cause != "" {
				b.evict(p.entry, now, cause, reason)
			}
		}
	case Shed, Full:
		if o.kind() == Full {
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
