package selection

import (
	"math"
	"slices"
)

// Endpoint is one member of a relay's range, as the caller describes it.
type Endpoint struct {
	// ID is the identity: statistics are carried over table changes by it.
	ID string
	// Weight is the share of this relay's traffic, relative to the other
	// endpoints; finite and >= 0. An endpoint of weight 0 is connected but
	// drawn only when nothing else is left.
	Weight float64
	// Tier is how far away the endpoint is, 0 nearest. A farther tier gets what
	// the healthy endpoints of the nearer ones cannot take; see
	// [Config.Overprovisioning].
	Tier uint8
	// Limit is the most requests that this balancer has in flight there, 0 for any
	// number. An endpoint without room is passed over as long as another has some.
	Limit int
	// Refuses says that the endpoint itself refuses what it cannot take, with the
	// outcome [Full]. Then Limit is this balancer's part only, of which others may have
	// left some: when none has room, the least full of these is asked all the same.
	// Where an endpoint does not refuse, Limit is never exceeded.
	Refuses bool
	// Value is opaque to selection: the relay keeps its connection pool here.
	Value any
}

// table is the immutable picture that picks read. A new one is published when
// the range changes, when an endpoint is evicted, half-opened or readmitted, and
// when the effective range grows or shrinks.
type table struct {
	near   candidates   // of the nearest tier that gets traffic
	beyond candidates   // of the tier of near, outside the effective range
	spill  []candidates // of others that get some, or have somebody to try; rarely any

	entries []entry // the whole range, in the caller's order
	byID    map[string]*entry
	routed  []bool // by entry: whether it is among the candidates
	shape   shape
	// halfOpen says that there is a half-open candidate, so that a pick must
	// look at phases. It is false nearly always.
	halfOpen bool
	// limited says that an endpoint has a Limit, so that a pick must look for room.
	limited bool
	// full are the tiers of which no further endpoint may be evicted. It spares a
	// failing range the mutex on every failure.
	full tierSet
}

// shape is what a table is made by, beside the endpoints.
type shape struct {
	width            int     // effective range: so many endpoints get traffic
	overprovisioning float64 // see Config
}

type entry struct {
	Endpoint
	state  *state
	member *member
}

// newTable takes the entries and their index, which tables of one range share.
func newTable(entries []entry, byID map[string]*entry, s shape) *table {
	t := &table{entries: entries, byID: byID, routed: make([]bool, len(entries)), shape: s}
	t.limited = slices.ContainsFunc(entries, func(e entry) bool { return e.Limit > 0 })
	counts := tally(entries)
	for _, c := range counts {
		if counts.full(c.tier) {
			t.full.add(c.tier)
		}
	}
	for _, share := range tierShares(entries, s.overprovisioning) {
		c, beyond := t.candidates(share)
		if len(c.drawn) > 0 {
			switch {
			case c.load == 0:
				// A tier without traffic may have somebody to try, once in a while.
				c.load = float64(len(c.drawn)) / float64(len(entries))
				t.spill = append(t.spill, c)
			case len(t.near.drawn) == 0:
				t.near, t.beyond = c, beyond
			default:
				t.spill = append(t.spill, c)
			}
		}
	}
	return t
}

// again is the table of the same range after phases have changed.
func (t *table) again() *table { return newTable(t.entries, t.byID, t.shape) }

// candidates are the first active endpoints of the tier, in ring order, as many as
// its part of the effective range has. Half-open endpoints come on top, wherever
// they are: else they would never be tried, and count as out for ever.
// beyond are the active ones behind those.
func (t *table) candidates(share tierShare) (inside, beyond candidates) {
	width := ceil(share.load * float64(t.shape.width))
	var in, out []drawn
	var weights, outWeights []float64
	for i := range t.entries {
		e := &t.entries[i]
		if e.Weight <= 0 || e.Tier != share.tier {
			continue
		}
		switch phase(e.state.phase.Load()) {
		case evicted:
			continue
		case halfOpen:
			t.halfOpen = true
		default:
			if width == 0 {
				out, outWeights = append(out, e.drawn()), append(outWeights, e.Weight)
				continue
			}
			width--
		}
		t.routed[i] = true
		in, weights = append(in, e.drawn()), append(weights, e.Weight)
	}
	return newCandidates(share, in, weights), newCandidates(share, out, outWeights)
}

func (e *entry) drawn() drawn { return drawn{e.state, e, e.Limit} }

// index finds the entries by ID.
func index(entries []entry) map[string]*entry {
	byID := make(map[string]*entry, len(entries))
	for i := range entries {
		byID[entries[i].ID] = &entries[i]
	}
	return byID
}

// weighOut tells the states what one own request in flight adds to the queue: the
// mean weight of the tier over the endpoint's. So an endpoint of twice the weight is
// as busy with twice as many.
func weighOut(entries []entry) {
	var sums [256]float64
	var counts [256]int
	for i := range entries {
		if e := &entries[i]; e.Weight > 0 {
			sums[e.Tier] += e.Weight
			counts[e.Tier]++
		}
	}
	for i := range entries {
		e := &entries[i]
		perOut := float32(1)
		if e.Weight > 0 {
			perOut = float32(sums[e.Tier] / float64(counts[e.Tier]) / e.Weight)
		}
		e.state.perOut.Store(math.Float32bits(perOut))
	}
}
