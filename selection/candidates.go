package selection

import (
	"math"
	"slices"
)

// candidates are the endpoints of one tier that a pick draws from.
type candidates struct {
	drawn []candidate
	// even is true if the weights are equal: drawing needs no alias tables.
	even bool
	// first and second draw the two endpoints of a pair. An endpoint must be in a pair
	// with exactly twice the probability of its share: if all scores are equal, each of
	// the pair wins half of the time, and every endpoint gets its share. Two draws by
	// weight do not achieve that: with the weights 4, 1 and 1 the first endpoint would be
	// in 93 % of the pairs and win half of them.
	// The first is drawn with Brewer's probabilities p(1-p)/(1-2p), the second by weight
	// among the others (Brewer, "A model of systematic sampling with unequal
	// probabilities", 1963).
	first, second aliasTable
	// dominant is the endpoint whose share is at least a half, -1 if there is none. It is
	// in every pair, and second draws the other endpoint. In rivalry of 2^32 pairs the
	// two compete evenly. In the other pairs the dominant endpoint wins unless the other
	// is dominance times better; this gives the dominant endpoint the part of its share
	// that a half of the pairs cannot give.
	dominant int
	rivalry  uint32

	tier uint8
	load float64 // share of the traffic
}

// candidate repeats the state pointer to save a cache line per draw.
type candidate struct {
	state *state
	entry *entry
	limit int // of entry
}

// dominance is the ratio of scores above which a dominant endpoint loses in spite of its
// weight. It is above two because one request in flight already doubles a score, and
// estimates can be wrong by a third.
const dominance = 3

func newCandidates(share tierShare, members []candidate, weights []float64) candidates {
	c := candidates{drawn: members, tier: share.tier, load: share.load, dominant: -1, even: true}
	total, heaviest := 0.0, 0
	for i, w := range weights {
		total += w
		if w > weights[heaviest] {
			heaviest = i
		}
		c.even = c.even && w == weights[0]
	}
	if len(weights) < 2 {
		return c
	}
	c.second = newAliasTable(weights)
	switch top := weights[heaviest] / total; {
	case c.even && len(weights) > 2:
	case top > 0.5-1e-6:
		c.even, c.dominant = false, heaviest
		c.rivalry = uint32(min(2*(1-top)*(1<<32), math.MaxUint32))
		if c.rivalry == 0 {
			c.rivalry = 1
		}
	default:
		brewer := make([]float64, len(weights))
		for i, w := range weights {
			p := w / total
			brewer[i] = p * (1 - p) / (1 - 2*p)
		}
		c.first = newAliasTable(brewer)
	}
	return c
}

// pair draws two different candidates; there must be at least two. random are fresh
// random bits; b.random gives more. Which of the two is i is random, so a tie can go to
// i. favoured is true if i is the dominant endpoint and wins unless j is dominance times
// better.
func (c *candidates) pair(b *core, random uint64, d *Decision) (i, j int, favoured bool) {
	high, low := uint32(random>>32), uint32(random)
	n := len(c.drawn)
	if c.even {
		i = int(uint64(high) * uint64(n) >> 32)
		if j = int(uint64(low) * uint64(n-1) >> 32); j >= i {
			j++
		}
		return i, j, false
	}
	if c.dominant >= 0 {
		i = c.dominant
		if n == 2 {
			j = 1 - i
		} else {
			j = c.second.drawOther(i, b.random(d))
		}
		if high > c.rivalry {
			return i, j, true
		}
	} else {
		i, j = c.first.draw(high), c.second.draw(low)
		if i == j {
			j = c.second.drawOther(i, b.random(d))
		}
	}
	// Randomise the order of the pair. The lowest bit is free: the draws above do not
	// depend on it noticeably.
	if low&1 == 0 {
		i, j = j, i
	}
	return i, j, false
}

// one draws one candidate by weight.
func (c *candidates) one(random uint32) *candidate {
	if len(c.drawn) == 1 {
		return &c.drawn[0]
	}
	return &c.drawn[c.second.draw(random)]
}

// choose draws a tier in proportion to its load and returns its candidates.
func (t *table) choose(random uint64) *candidates {
	x := unit(random)
	for i := range t.spill {
		if x -= t.spill[i].load; x < 0 {
			return &t.spill[i]
		}
	}
	return &t.near
}

// exclusionSize exceeds the four endpoints that can fail before the fifth and last
// attempt of a request.
const exclusionSize = 8

// Exclusion is the set of endpoints that one request has already tried. It affects no
// other request. The zero value is empty and ready for use. An Exclusion is not safe for
// concurrent use and never allocates.
type Exclusion struct {
	tried       [exclusionSize]string // IDs, because an endpoint that leaves the range and comes back has a new state
	n           int
	eligibility eligibility
}

func (e *Exclusion) add(id string) {
	if e.contains(id) {
		return
	}
	e.tried[e.n%exclusionSize] = id
	e.n++
}

// count returns how many endpoints are excluded. A nil Exclusion is empty.
func (e *Exclusion) count() int {
	if e == nil {
		return 0
	}
	return min(e.n, exclusionSize)
}

func (e *Exclusion) contains(id string) bool {
	return e != nil && slices.Contains(e.tried[:e.count()], id)
}

// room is whether an endpoint takes one more request of a balancer.
type room uint8

// The values of room, best first.
const (
	hasRoom room = iota
	// atLimit: the balancer has as many requests in flight as the endpoint's Limit. Only
	// the endpoint knows whether other balancers have left room.
	atLimit
	// refusedLately: the endpoint has just refused a request because it is full.
	refusedLately
	// noRoom: the endpoint is at its Limit and does not refuse requests by itself.
	noRoom
)

func (d *candidate) room(now tick) room {
	if d.limit == 0 {
		return hasRoom
	}
	full := int(d.state.outstanding()) >= d.limit
	switch {
	case full && !d.entry.Refuses:
		return noRoom
	case d.state.refusedLately(now):
		return refusedLately
	case full:
		return atLimit
	}
	return hasRoom
}

// withRoom returns the score, or infinity, which never wins, if there is no room.
func (d *candidate) withRoom(score float32, v *view) float32 {
	if d.room(v.tick) != hasRoom {
		return float32(math.Inf(1))
	}
	return score
}

// ownLimit returns the limit that this balancer enforces itself, 0 for none.
func ownLimit(e *entry) int {
	if e.Refuses {
		return 0
	}
	return e.Limit
}

const (
	// fullFor, 50 ms, is how long an endpoint counts as full after its first refusal, and
	// maxFullFor, 10 s, the maximum after several refusals. The range is wide because the
	// places may be held by requests of milliseconds or by sessions of hours.
	fullFor    = int32(50_000_000 >> tickShift)
	maxFullFor = int32(10_000_000_000 >> tickShift)
	// refusals masks the number of refusals, the lowest bits of state.full; the other bits
	// hold the time.
	refusals = 1<<4 - 1
)

// refused marks the endpoint as full. Each refusal after the end of that time doubles the
// next; the end of a request clears the mark.
func (s *state) refused(now tick) {
	if s.refusedLately(now) {
		return
	}
	n := s.full.Load() & refusals
	until := uint32(now) + uint32(min(fullFor<<n, maxFullFor))
	s.full.Store(until&^refusals | min(n+1, refusals))
}

func (s *state) refusedLately(now tick) bool {
	word := s.full.Load()
	return word != 0 && int32(word&^refusals-uint32(now)) > 0
}

// InFlight counts the requests that a balancer has in flight at one endpoint. The zero
// value counts none. An InFlight is valid while the endpoint stays in the range.
type InFlight struct{ state *state }

// Count returns the number of requests in flight. No lock, no allocation.
func (f InFlight) Count() int {
	if f.state == nil {
		return 0
	}
	return int(f.state.outstanding())
}

func (b *core) load(id string, now Instant) (inFlight float64, sampled bool) {
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
