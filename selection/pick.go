package selection

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
)

// ErrNoEndpoint is wrapped by every error of [Balancer.Pick] and
// [Balancer.Take].
var ErrNoEndpoint = errors.New("no endpoint to pick")

var (
	errEmptyRange  = fmt.Errorf("selection: %w: the range is empty; wait for workers to advertise the service", ErrNoEndpoint)
	errAllExcluded = fmt.Errorf("selection: %w: this request has tried every endpoint of the range; return its last error", ErrNoEndpoint)
)

// Pick is the ticket of one request: which endpoint it goes to and when it
// started. It is a small value; give it back with [Balancer.Done] exactly once.
type Pick struct { // more than four fields would not travel in registers
	state *state // of entry, which Done need not read then
	entry *entry
	start Instant
	is    ticketKind
}

type ticketKind uint8

const (
	ordinary ticketKind = iota
	probing             // the one request of a half-open endpoint
	answered            // Answered has learnt from the head of the answer
)

// Endpoint returns the endpoint as the last Update before the pick gave it.
// It panics on the zero Pick, which no successful call returns.
func (p Pick) Endpoint() Endpoint { return p.entry.Endpoint }

// ID returns the endpoint's identity.
func (p Pick) ID() string { return p.entry.ID }

// Value returns what the caller stored with the endpoint.
func (p Pick) Value() any { return p.entry.Value }

// Pick chooses an endpoint for a request that starts now. It avoids the
// endpoints in excluded (nil for none), then prefers active ones, then any
// other rather than failing. The error wraps [ErrNoEndpoint] and says whether
// the range is empty or entirely excluded. No lock, no allocation, no scan; only
// a request whose exclusions leave nearly nothing looks through the range.
func (b *Balancer) Pick(now Instant, excluded *Exclusion) (Pick, error) {
	return b.pick(now, excluded, nil)
}

func (b *Balancer) pick(now Instant, excluded *Exclusion, d *Decision) (Pick, error) {
	t := b.table.Load()
	if t.halfOpen || excluded.Len() > 0 || len(t.near.drawn) == 0 {
		return b.pickAround(t, now, excluded, d)
	}
	c := &t.near
	if len(t.spill) > 0 {
		c = t.choose(b.random(d))
	}
	d.among(c)
	if len(c.drawn) == 1 {
		d.only()
		return b.begin(&c.drawn[0], now, d), nil
	}
	v := b.view(now)
	winner := b.winner.load()
	redraws := b.redraws
	if c.dominant >= 0 {
		redraws = 0 // another pair would take from the dominant one what weight gives it
	}
	var best *drawn
	lowest := float32(math.Inf(1))
	for {
		i, j, favoured := c.pair(b, b.random(d), d)
		first, second := &c.drawn[i], &c.drawn[j]
		// Ties go to the first of the pair, which is either by chance.
		one := combine(first.state.parts(&v))
		other := combine(second.state.parts(&v))
		d.pair(first, second, &v, favoured)
		if favoured {
			one /= dominance
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
	if best == nil { // every score overflowed to +Inf or NaN
		best = &c.drawn[0]
	} else if c.dominant < 0 && d.real() {
		b.winner.follow(winner, lowest)
	}
	return b.begin(best, now, d), nil
}

// begin makes the ticket and counts the request as sent.
func (b *Balancer) begin(best *drawn, now Instant, d *Decision) Pick {
	if d.real() {
		best.state.begin(now.tick())
	}
	d.won(best, b, now)
	return Pick{state: best.state, entry: best.entry, start: now}
}

// drawTries bounds the draws that may hit excluded or busy half-open endpoints
// before pickAround looks through the range instead.
const drawTries = 8

// pickAround is pick where some endpoints must be passed over.
func (b *Balancer) pickAround(t *table, now Instant, excluded *Exclusion, d *Decision) (Pick, error) {
	if len(t.entries) == 0 {
		return Pick{}, errEmptyRange
	}
	chosen := &t.near
	if len(t.spill) > 0 {
		chosen = t.choose(b.random(d))
	}
	if p, ok := b.pickAmong(t, chosen, now, excluded, d); ok {
		return p, nil
	}
	for i := -1; i < len(t.spill); i++ { // nearest first
		c := &t.near
		if i >= 0 {
			c = &t.spill[i]
		}
		if c == chosen {
			continue
		}
		if p, ok := b.pickAmong(t, c, now, excluded, d); ok {
			return p, nil
		}
	}
	return b.pickLast(t, now, excluded, d)
}

// pickAmong draws pairs by weight from what may be picked among the candidates.
func (b *Balancer) pickAmong(t *table, c *candidates, now Instant, excluded *Exclusion, d *Decision) (Pick, bool) {
	d.among(c)
	v := b.view(now)
	winner := b.winner.load()
	var best *drawn
	lowest := float32(math.Inf(1))
	for range b.redraws + 1 {
		var first, second *drawn
		for range drawTries {
			if len(c.drawn) == 0 {
				break
			}
			one := c.one(uint32(b.random(d) >> 32))
			if one == first || excluded.contains(one.state) {
				continue
			}
			if t.halfOpen && phase(one.state.phase.Load()) != active {
				// A half-open endpoint must be chosen, not merely admitted:
				// beside healthy ones it would hardly ever win.
				if one.state.claimProbe(d.real()) {
					d.probe()
					p := b.begin(one, now, d)
					p.is = probing
					return p, true
				}
				continue
			}
			if score := one.state.score(&v); score < lowest || best == nil {
				best, lowest = one, score
			}
			if first != nil {
				second = one
				d.pair(first, second, &v, false)
				break
			}
			first = one
		}
		if first != nil && second == nil {
			d.pair(first, nil, &v, false)
		}
		if best == nil || lowest <= winner || winner == 0 {
			break
		}
	}
	if best == nil {
		return Pick{}, false
	}
	if d.real() {
		b.winner.follow(winner, lowest)
	}
	if d != nil && len(d.Pairs) == 0 {
		d.only()
	}
	return b.begin(best, now, d), true
}

// pickLast is the last resort: any candidate that is not excluded, in proportion
// to weight, else any other active endpoint, else any of weight 0, else any
// evicted one; of the nearest tier each time.
func (b *Balancer) pickLast(t *table, now Instant, excluded *Exclusion, d *Decision) (Pick, error) {
	var chosen *entry
	var total float64
	best := math.MaxInt
	for i := range t.entries {
		e := &t.entries[i]
		if excluded.contains(e.state) {
			continue
		}
		rank, weight := 0, e.Weight
		switch {
		case phase(e.state.phase.Load()) != active:
			rank, weight = 3, 1
		case e.Weight <= 0:
			rank, weight = 2, 1
		case !t.routed[i]:
			rank = 1
		}
		if rank = rank<<8 | int(e.Tier); rank > best {
			continue
		}
		if rank < best {
			best, total = rank, 0
		}
		// Weighted reservoir of one: a newcomer replaces the choice with
		// probability weight / total so far.
		total += weight
		if unit(b.random(d))*total < weight {
			chosen = e
		}
	}
	if chosen == nil {
		return Pick{}, errAllExcluded
	}
	one := chosen.drawn()
	d.last(best >> 8)
	p := b.begin(&one, now, d)
	if chosen.state.claimProbe(d.real()) {
		p.is = probing
	}
	return p, nil
}

// claimProbe takes the one place of a half-open endpoint; unless really, it only
// says whether it is free.
func (s *state) claimProbe(really bool) bool {
	if phase(s.phase.Load()) != halfOpen {
		return false
	}
	if !really {
		return s.probing.Load() == 0
	}
	return s.probing.CompareAndSwap(0, 1)
}

// random returns 64 random bits. An explanation does not disturb the sequence of a
// given source.
func (b *Balancer) random(d *Decision) uint64 {
	if b.rand == nil || !d.real() {
		return rand.Uint64()
	}
	return b.rand()
}

func (b *Balancer) view(now Instant) view {
	median, queue := unpackPair(b.medians.Load())
	return view{now: now, tick: now.tick(), median: median, queue: queue, slowStart: b.slowStart}
}
