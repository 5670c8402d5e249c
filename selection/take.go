package selection

import "fmt"

// Take begins a request on the named endpoint of the range, whatever its state:
// somebody else has chosen it. The ticket is as one of Pick, so what becomes of
// the request is learnt. The error wraps [ErrNoEndpoint] when the range has no
// such endpoint, and [ErrFull] when it is at a Limit that it does not keep to itself. No lock; it allocates only the error.
func (b *Balancer) Take(id string, now Instant) (Pick, error) {
	e := b.table.Load().byID[id]
	if e == nil {
		return Pick{}, fmt.Errorf("selection: %w: %q is not in the range; choose again from the present one", ErrNoEndpoint, id)
	}
	if !e.state.begin(now.tick(), hard(e)) {
		return Pick{}, errFull
	}
	p := Pick{state: e.state, entry: e, start: now}
	if e.state.claimProbe(true) {
		p.is = probing
	}
	return p, nil
}

// Load returns how many requests the named endpoint has in flight. sampled says
// that the endpoint reported it in the last 10 s: then it is that report, of all
// relays' requests, and what this relay sent since, or this relay's own where these are
// more: a report does not count the request whose answer brought it. Otherwise it is this relay's
// own requests in flight, and 0 for an endpoint that is not in the range. No lock,
// no allocation.
func (b *Balancer) Load(id string, now Instant) (inFlight float64, sampled bool) {
	e := b.table.Load().byID[id]
	if e == nil {
		return 0, false
	}
	s, t := e.state, now.tick()
	if s.reported.Load() != ownReport || t.since(tick(s.reportTick.Load())) > reportExpiry {
		return float64(s.outstanding()), false
	}
	last, _ := unpackPair(s.report.Load())
	return float64(max(last+s.sentSinceReport(t), s.outstanding())), true
}

// Heard returns when the named endpoint last gave this relay an answer that was no
// failure, to 131 µs; known is false when it never did, or is not in the range.
// Times that are more than 18 minutes past may be reported as later than they
// were. No lock, no allocation.
func (b *Balancer) Heard(id string, now Instant) (at Instant, known bool) {
	e := b.table.Load().byID[id]
	if e == nil {
		return 0, false
	}
	const never = int32(1<<31 - 1)
	age, t := never, now.tick()
	if word := e.state.latency.Load(); word != 0 {
		_, sampled := unpack(word)
		age = t.since(sampled)
	}
	if e.state.reported.Load() != noReport {
		age = min(age, t.since(tick(e.state.reportTick.Load())))
	}
	if age == never {
		return 0, false
	}
	return now - Instant(age)<<tickShift, true
}
