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
	answered            // Answered has recorded the head of the answer
)

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
		d.only()
		p, _ := b.begin(&c.drawn[0], now, d) // cannot fail: the endpoint has no limit
		return p, nil
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
	if best != nil && len(t.guests.drawn) > 0 && winner > 0 && lowest > spillAbove*winner {
		best, lowest = b.better(&t.guests, best, bestSoFar{lowest, &v, d})
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

// drawTries limits the draws that may hit excluded or busy half-open endpoints before
// pickAround scans the range instead.
const drawTries = 8

// retryPairs bounds the pairs that are drawn for a retry: if half of the endpoints are
// behind a black hole, three pairs are all bad in one of 64 picks.
const retryPairs = 8

// pickAround is pick for the case that some endpoints must be passed over.
func (b *core) pickAround(t *table, now Instant, excluded *Exclusion, d *Decision) (ticket, error) {
	if len(t.entries) == 0 {
		return ticket{}, errEmptyRange
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

// pickAmong draws pairs by weight from the candidates that may be picked.
func (b *core) pickAmong(t *table, c *candidates, now Instant, excluded *Exclusion, d *Decision) (ticket, bool) {
	d.among(c)
	v := b.view(now)
	winner := b.winner.load()
	var best *candidate
	lowest := float32(math.Inf(1))
	pairs := b.redraws + 1
	if excluded.count() > 0 {
		pairs = max(pairs, retryPairs)
	}
	for range pairs {
		var first, second *candidate
		for range drawTries {
			if len(c.drawn) == 0 {
				break
			}
			one := c.one(uint32(b.random(d) >> 32))
			if one == first || excluded.contains(one.entry.ID) || one.room(v.tick) != hasRoom {
				continue
			}
			if t.halfOpen && phase(one.state.phase.Load()) != active {
				if excluded.count() > 0 {
					continue // a retry is not used to probe an evicted endpoint
				}
				// A half-open endpoint is picked without comparison: against
				// healthy endpoints it would hardly ever win.
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
		return ticket{}, false
	}
	if c == &t.near && excluded.count() == 0 {
		best, lowest = b.beyond(t, best, bestSoFar{lowest, &v, d})
	}
	if d.real() {
		b.winner.update(winner, lowest, b.random(d))
	}
	if d != nil && len(d.Pairs) == 0 {
		d.only()
	}
	return b.begin(best, now, d)
}

// The ranks of pickLast, best first.
const (
	lastRouted     = iota // a candidate
	lastOther             // active, but not a candidate
	lastUnweighted        // weight 0
	lastFull              // at this balancer's limit; other balancers may have left room
	lastEvicted           // evicted or half-open
	lastRefused           // has just refused a request because it is full
)

// pickLast is the last resort. It chooses among the endpoints that are not excluded: a
// candidate, in proportion to weight; else another active endpoint; else one of weight
// 0; else the least full of those that refuse requests by themselves; else an evicted
// one; each time from the nearest tier. An endpoint that has just refused because it was
// full comes last, and only for a request without exclusions.
func (b *core) pickLast(t *table, now Instant, excluded *Exclusion, d *Decision) (ticket, error) {
	var chosen candidate
	var total, fullest float64
	best, full := math.MaxInt, false
	for i := range t.entries {
		e := &t.entries[i]
		if excluded.contains(e.ID) {
			continue
		}
		one := e.candidate()
		rank, weight, taken := lastRouted, e.Weight, 0.0
		switch room := one.room(now.tick()); {
		case room == noRoom || room == refusedLately && excluded.count() > 0:
			full = true
			continue
		case room == refusedLately:
			rank, weight, one.limit = lastRefused, 1, ownLimit(e)
		case phase(e.state.phase.Load()) != active:
			rank, weight, one.limit = lastEvicted, 1, ownLimit(e)
		case room == atLimit:
			rank, weight, one.limit = lastFull, 1, ownLimit(e)
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
		// Weighted reservoir sampling with one place: each endpoint replaces the
		// choice with probability weight / total so far.
		total += weight
		if unit(b.random(d))*total < weight {
			chosen = one
		}
	}
	switch {
	case chosen.state != nil:
	case full:
		return ticket{}, errFull
	default:
		return ticket{}, errAllExcluded
	}
	d.last(best >> 8)
	p, ok := b.begin(&chosen, now, d)
	if !ok {
		return b.pickLast(t, now, excluded, d) // its last place was just taken; it is not eligible any more
	}
	if chosen.state.claimProbe(d.real()) {
		p.is = probing
	}
	return p, nil
}

// claimProbe claims the one place of a half-open endpoint and reports whether it was
// free. With really false it claims nothing.
func (s *state) claimProbe(really bool) bool {
	if phase(s.phase.Load()) != halfOpen {
		return false
	}
	if !really {
		return s.probing.Load() == 0
	}
	return s.probing.CompareAndSwap(0, 1)
}

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
		headroom: math.Float32frombits(b.headroom.Load()), overdue: b.overdue.Load(),
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
