package selection

import (
	"math"
	"time"
)

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
				if one.state.claimProbe(now, d.real()) {
					d.probe()
					p, ok := b.begin(one, now, d)
					if !ok {
						one.state.endProbe(now)
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
	if chosen.state.claimProbe(now, d.real()) {
		p.is = probing
	}
	return p, nil
}

// claimProbe claims the one place of a half-open endpoint for a request that starts now, and
// reports whether it was free. With really false it claims nothing.
func (s *state) claimProbe(now Instant, really bool) bool {
	if phase(s.phase.Load()) != halfOpen {
		return false
	}
	if !really {
		return s.probing.Load() == 0
	}
	return s.probing.CompareAndSwap(0, claimAt(now))
}

// endProbe frees the place if the request that started then still has it.
func (s *state) endProbe(start Instant) { s.probing.CompareAndSwap(claimAt(start), 0) }

// endLateProbe frees the place of a request that is not over after the longest eviction. A long
// answer or a slow client would otherwise keep an endpoint out that works again. The late request
// still decides about the endpoint if it ends first.
func (s *state) endLateProbe(now Instant, longest time.Duration) {
	claim := s.probing.Load()
	if claim != 0 && time.Duration(now.tick().since(tick(claim)))<<tickShift >= longest {
		s.probing.CompareAndSwap(claim, 0)
	}
}

// claimAt is the tick as state.probing holds it: 0 stands for none.
func claimAt(start Instant) uint32 { return max(uint32(start.tick()), 1) }
