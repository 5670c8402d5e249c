package selection

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// ErrNoEndpoint is wrapped by every error of [Balancer.Pick] and
// [Balancer.Take].
var ErrNoEndpoint = errors.New("no endpoint to pick")

// ErrFull is wrapped in addition to ErrNoEndpoint if only the limits of endpoints
// prevent a pick.
var ErrFull = errors.New("every remaining endpoint is full")

var (
	errEmptyRange  = fmt.Errorf("selection: %w: the range is empty; wait for workers to advertise the service", ErrNoEndpoint)
	errFull        = fmt.Errorf("selection: %w: %w; try again when a request has ended", ErrNoEndpoint, ErrFull)
	errAllExcluded = fmt.Errorf("selection: %w: this request has tried every endpoint of the range; return its last error", ErrNoEndpoint)
)

// Pick is the ticket of one request: its endpoint and its start. It is a small value;
// give it back with [Balancer.Done] exactly once.
type Pick[V any] struct{ ticket }

// ID returns the endpoint's identity. Like Value it panics on the zero Pick, which no successful
// call returns.
func (p Pick[V]) ID() string { return p.entry.ID }

// Value returns what the caller stored with the endpoint in the last Update before the pick.
func (p Pick[V]) Value() V {
	v, _ := p.entry.Value.(V) // fails only for the nil of an interface
	return v
}

// AddTo excludes the endpoint from the next picks of the same request. The set holds the last
// eight endpoints.
func (p Pick[V]) AddTo(excluded *Exclusion) {
	if p.entry != nil {
		excluded.add(p.ID())
	}
}

// ticket is a Pick without the type of its value.
type ticket struct { // at most four fields, so that it is passed in registers
	state *state // of entry; repeated so that Done does not read entry
	entry *entry
	start Instant
	is    ticketKind
}

type ticketKind uint8

const (
	ordinary ticketKind = iota
	probing             // the one request of a half-open endpoint
	// answered and above: Answered has recorded the head of the answer. What is above are the failures in
	// a row that the head has ended.
	answered
)

const (
	maxInARow = 200
	// soonFailed is how long after the pick a call must fail, at most, so that its head has ended no row of
	// failures: a call of gRPC can fail after a good head.
	soonFailed = Instant(30 * time.Second)
)

// Pick chooses an endpoint for a request that starts now. It never chooses an endpoint
// in excluded (nil for none). It prefers active endpoints and uses others only if no
// active one is left. The error wraps [ErrNoEndpoint] and states whether the range is
// empty, full or entirely excluded. No lock, no allocation, no scan; Pick scans the range
// only if repeated draws find no usable endpoint.
func (b *Balancer[V]) Pick(now Instant, excluded *Exclusion) (Pick[V], error) {
	t, err := b.pick(now, excluded, nil)
	return Pick[V]{t}, err
}

func (b *core) pick(now Instant, excluded *Exclusion, d *Decision) (ticket, error) {
	t := b.table.Load()
	if t.halfOpen || excluded.count() > 0 || len(t.near.drawn) == 0 || t.limited && len(t.near.drawn) == 1 {
		return b.pickAround(t, now, excluded, d)
	}
	c := &t.near
	if len(t.spill) > 0 {
		c = t.choose(b.random(d))
	}
	d.among(c)
	if len(c.drawn) == 1 {
		if one := &c.drawn[0]; one.room(now.tick()) == hasRoom {
			if p, ok := b.begin(one, now, d); ok {
				d.only()
				return p, nil
			}
		}
		return b.pickAround(t, now, excluded, d) // it is the only one of a farther tier, and full
	}
	v := b.view(now)
	winner := b.winner.load()
	redraws := b.redraws
	if c.dominant >= 0 {
		redraws = 0 // another pair would take traffic from the dominant endpoint that its weight gives it
	}
	var best *candidate
	lowest := float32(math.Inf(1))
	var random uint64
	for {
		random = b.random(d)
		i, j, favoured := c.pair(b, random, d)
		first, second := &c.drawn[i], &c.drawn[j]
		// Ties go to the first of the pair; the order of the pair is random.
		one := v.combine(first.state.parts(&v))
		other := v.combine(second.state.parts(&v))
		d.pair(first, second, &v, favoured)
		if favoured {
			one /= dominance
		}
		if t.limited {
			one, other = first.withRoom(one, &v), second.withRoom(other, &v)
		}
		if one < lowest {
			best, lowest = first, one
		}
		if other < lowest {
			best, lowest = second, other
		}
		if lowest <= winner || winner == 0 || redraws == 0 {
			break
		}
		redraws--
	}
	if best != nil && c == &t.near && c.dominant < 0 {
		best, lowest = b.beyond(t, best, bestSoFar{lowest, &v, d})
	}
	if best != nil && len(t.otherZone.drawn) > 0 && winner > 0 && lowest > spillAbove*winner {
		best, lowest = b.better(&t.otherZone, best, bestSoFar{lowest, &v, d})
	}
	if best == nil && t.limited {
		return b.pickAround(t, now, excluded, d)
	}
	if best == nil { // every score overflowed to +Inf or NaN
		best = &c.drawn[0]
	} else if c.dominant < 0 && d.real() {
		b.winner.update(winner, lowest, random)
	}
	p, ok := b.begin(best, now, d)
	if !ok { // another request took the last place in the meantime
		return b.pickAround(t, now, excluded, d)
	}
	return p, nil
}

// bestSoFar is the score of the best endpoint so far, with the context of the pick.
type bestSoFar struct {
	score float32
	v     *view
	d     *Decision
}

// beyond returns best, or a better endpoint outside the effective range if best already
// has a request of this relay in flight. The effective range is narrow to keep its
// estimates fresh; long or simultaneous requests need more endpoints, and Refresh would
// widen the range too late for them.
func (b *core) beyond(t *table, best *candidate, sofar bestSoFar) (*candidate, float32) {
	if len(t.beyond.drawn) == 0 || best.state.outstanding() == 0 {
		return best, sofar.score
	}
	return b.better(&t.beyond, best, sofar)
}

// spillAbove is how many times the usual score of a winner the best endpoint must have before a
// request may go to another zone instead. Within seconds this moves what the zone cannot take;
// the plan follows when relays state their traffic.
const spillAbove = 2

// better returns best, or the better of two candidates if that one has a lower score.
func (b *core) better(c *candidates, best *candidate, sofar bestSoFar) (*candidate, float32) {
	first := c.one(uint32(b.random(sofar.d) >> 32))
	second := c.one(uint32(b.random(sofar.d) >> 32))
	if second == first {
		sofar.d.pair(first, nil, sofar.v, false)
	} else {
		sofar.d.pair(first, second, sofar.v, false)
	}
	for _, one := range []*candidate{first, second} {
		if score := one.withRoom(one.state.score(sofar.v), sofar.v); score < sofar.score {
			best, sofar.score = one, score
		}
	}
	return best, sofar.score
}

// begin makes the ticket and counts the request as sent, unless the endpoint is at its
// limit.
func (b *core) begin(best *candidate, now Instant, d *Decision) (p ticket, ok bool) {
	if d.real() && !best.state.begin(now.tick(), best.limit) {
		return ticket{}, false
	}
	d.won(best, b, now)
	return ticket{state: best.state, entry: best.entry, start: now}, true
}

// Answered reports that the head of the answer has arrived, possibly long before its
// end. Statistics are updated now: the time since the pick is the latency of a Success,
// a failure or a shed counts, a load report is recorded, and an endpoint that was tried
// after an eviction is readmitted. The request stays in flight until Done gets the
// ticket that Answered returns, which replaces p. Call Answered if a body may take long;
// without it Done updates the statistics. With Cancelled, or for a ticket that is
// already answered, nothing happens, except by Result.AwaitsBody.
func (b *Balancer[V]) Answered(p Pick[V], now Instant, r Result) Pick[V] {
	return Pick[V]{b.answered(p.ticket, now, r)}
}

func (b *core) answered(p ticket, now Instant, r Result) ticket {
	switch {
	case p.state == nil || p.is >= answered:
		return p
	case r.Outcome == Cancelled:
		if r.AwaitsBody != 0 {
			p.state.awaitsBody(int32(r.AwaitsBody), now.tick())
		}
		return p
	}
	p.state.streaming.Add(1 + int32(r.AwaitsBody))
	row := uint32(0)
	if r.Outcome == Success {
		row = min(p.state.consecutive.Load(), maxInARow)
	}
	b.learn(p, now, r)
	p.is = answered + ticketKind(row)
	return p
}

// Done gives back a ticket. It must be called exactly once for every Pick, PickSession, PickBy
// and Take without an error.
//
// The time since the pick is the latency sample of a Success. After Answered only a
// failure counts, because a body that breaks off is a failure; every other outcome was
// recorded when the head arrived.
func (b *Balancer[V]) Done(p Pick[V], now Instant, r Result) { b.done(p.ticket, now, r) }

func (b *core) done(p ticket, now Instant, r Result) {
	if p.state == nil {
		return
	}
	s := p.state
	s.done.Add(1)
	if r.AwaitsBody != 0 {
		s.streaming.Add(int32(r.AwaitsBody))
	}
	if r.Outcome != Full && s.full.Load() != 0 {
		s.full.Store(0) // a place is free
	}
	if p.is >= answered {
		s.streaming.Add(-1)
		if !r.Outcome.failed() {
			return
		}
		if now-p.start < soonFailed {
			s.consecutive.Add(uint32(p.is - answered))
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
		if tried := s.succeeded(time.Duration(now-p.start)-r.Client, t, b.alpha, median); tried != noTry && s.reported.Load() != ownReport {
			b.tries.add(tried)
		}
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
		s.endProbe(p.start)
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
	// Client is how long the request waited for its client, which is no part of the latency. Only
	// Success uses it.
	Client time.Duration
	// AwaitsBody, for [Balancer.Answered] with Cancelled, is 1 when the request begins to wait for its
	// client to send the body, and -1 when the body has moved. Meanwhile the request does not wait for
	// the endpoint. If an answer, or the end of the request, ends that wait, its Result has the -1.
	AwaitsBody int8
}

// load returns Load as the statistics keep it.
func (r Result) load() float32 { return float32(min(max(r.Load, 0), math.MaxInt32)) }

// random returns 64 random bits. Explain does not read the configured source, so it does
// not change the sequence.
func (b *core) random(d *Decision) uint64 {
	if b.rand == nil || !d.real() {
		return rand.Uint64()
	}
	return b.rand()
}

func (b *core) view(now Instant) view {
	median, queue := unpackPair(b.medians.Load())
	return view{
		now: now, tick: now.tick(), median: median, queue: queue, slowStart: b.slowStart,
		headroom: math.Float32frombits(b.headroom.Load()), overdue: b.overdue.Load(), slowFactor: math.Float32frombits(b.slow.Load()),
	}
}

func (b *core) silence(id string, now Instant) time.Duration {
	e := b.table.Load().byID[id]
	if e == nil {
		return 0
	}
	s := e.state
	if out := s.outstanding(); out <= 0 || out <= float32(s.streaming.Load()) {
		return 0
	}
	return time.Duration(now.tick().since(tick(s.silenceTick.Load()))) << tickShift
}
