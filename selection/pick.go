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

// ErrFull is wrapped, beside ErrNoEndpoint, where only the limits of endpoints are in
// the way.
var ErrFull = errors.New("every endpoint that is left has as many requests as it takes")

var (
	errEmptyRange  = fmt.Errorf("selection: %w: the range is empty; wait for workers to advertise the service", ErrNoEndpoint)
	errFull        = fmt.Errorf("selection: %w: %w; try again when one has ended", ErrNoEndpoint, ErrFull)
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
	if t.halfOpen || excluded.Len() > 0 || len(t.near.drawn) == 0 || t.limited && len(t.near.drawn) == 1 {
		return b.pickAround(t, now, excluded, d)
	}
	c := &t.near
	if len(t.spill) > 0 {
		c = t.choose(b.random(d))
	}
	d.among(c)
	if len(c.drawn) == 1 {
		d.only()
		p, _ := b.begin(&c.drawn[0], now, d) // it has no limit
		return p, nil
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
		best, lowest = b.beyond(t, best, seen{lowest, &v, d})
	}
	if best == nil && t.limited {
		return b.pickAround(t, now, excluded, d)
	}
	if best == nil { // every score overflowed to +Inf or NaN
		best = &c.drawn[0]
	} else if c.dominant < 0 && d.real() {
		b.winner.follow(winner, lowest)
	}
	p, ok := b.begin(best, now, d)
	if !ok { // others have taken its last place meanwhile
		return b.pickAround(t, now, excluded, d)
	}
	return p, nil
}

// seen is what a pick knows of the best endpoint so far.
type seen struct {
	score float32
	v     *view
	d     *Decision
}

// beyond returns the best endpoint, or a better one outside the effective range where
// the best one inside has a request of ours in flight already. The range is narrow so
// that its estimates are fresh; requests that last, or come at one time, need its
// width, and Refresh would find that out too late.
func (b *Balancer) beyond(t *table, best *drawn, so seen) (*drawn, float32) {
	c := &t.beyond
	if len(c.drawn) == 0 || best.state.outstanding() == 0 {
		return best, so.score
	}
	first := c.one(uint32(b.random(so.d) >> 32))
	second := c.one(uint32(b.random(so.d) >> 32))
	if second == first {
		so.d.pair(first, nil, so.v, false)
	} else {
		so.d.pair(first, second, so.v, false)
	}
	for _, one := range []*drawn{first, second} {
		if score := one.withRoom(one.state.score(so.v), so.v); score < so.score {
			best, so.score = one, score
		}
	}
	return best, so.score
}

// begin makes the ticket and counts the request as sent, unless the endpoint is at its
// limit.
func (b *Balancer) begin(best *drawn, now Instant, d *Decision) (p Pick, ok bool) {
	if d.real() && !best.state.begin(now.tick(), best.limit) {
		return Pick{}, false
	}
	d.won(best, b, now)
	return Pick{state: best.state, entry: best.entry, start: now}, true
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
			if one == first || excluded.contains(one.state) || one.room(v.tick) != HasRoom {
				continue
			}
			if t.halfOpen && phase(one.state.phase.Load()) != active {
				// A half-open endpoint must be chosen, not merely admitted:
				// beside healthy ones it would hardly ever win.
				if one.state.claimProbe(d.real()) {
					d.probe()
					p, ok := b.begin(one, now, d)
					if !ok {
						one.state.probing.Store(0)
						continue
					}
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
	if c == &t.near && excluded.Len() == 0 {
		best, lowest = b.beyond(t, best, seen{lowest, &v, d})
	}
	if d.real() {
		b.winner.follow(winner, lowest)
	}
	if d != nil && len(d.Pairs) == 0 {
		d.only()
	}
	return b.begin(best, now, d)
}

// The ranks of pickLast.
const (
	lastRouted = iota
	lastOther
	lastUnweighted
	lastFull // at this balancer's limit; there may be room that others leave
	lastEvicted
	lastRefused // it has just said that it is full
)

// pickLast is the last resort: any candidate that is not excluded, in proportion
// to weight, else any other active endpoint, else any of weight 0, else the least full
// of those that refuse what they cannot take, else any evicted one; of the nearest tier
// each time. Of those that have just refused one is asked, by a request that no
// endpoint has refused.
func (b *Balancer) pickLast(t *table, now Instant, excluded *Exclusion, d *Decision) (Pick, error) {
	var chosen drawn
	var total, fullest float64
	best, full := math.MaxInt, false
	for i := range t.entries {
		e := &t.entries[i]
		if excluded.contains(e.state) {
			continue
		}
		one := e.drawn()
		rank, weight, taken := lastRouted, e.Weight, 0.0
		switch room := one.room(now.tick()); {
		case room == NoRoom || room == RefusedLately && excluded.Len() > 0:
			full = true
			continue
		case room == RefusedLately:
			rank, weight, one.limit = lastRefused, 1, hard(e)
		case phase(e.state.phase.Load()) != active:
			rank, weight, one.limit = lastEvicted, 1, hard(e)
		case room == AtLimit:
			rank, weight, one.limit = lastFull, 1, hard(e)
			taken = float64(e.state.outstanding()) / float64(e.Limit)
		case e.Weight <= 0:
			rank, weight = lastUnweighted, 1
		case !t.routed[i]:
			rank = lastOther
		}
		rank = rank<<8 | int(e.Tier)
		if rank > best || rank == best && taken > fullest {
			continue
		}
		if rank == best && taken < fullest {
			total = 0
		}
		fullest = taken
		if rank < best {
			best, total = rank, 0
		}
		// Weighted reservoir of one: a newcomer replaces the choice with
		// probability weight / total so far.
		total += weight
		if unit(b.random(d))*total < weight {
			chosen = one
		}
	}
	switch {
	case chosen.state != nil:
	case full:
		return Pick{}, errFull
	default:
		return Pick{}, errAllExcluded
	}
	d.last(best >> 8)
	p, ok := b.begin(&chosen, now, d)
	if !ok {
		return b.pickLast(t, now, excluded, d) // its last place is taken; there are fewer now
	}
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
