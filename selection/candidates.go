package selection

import "math"

// candidates are the endpoints of one tier that a pick draws from.
type candidates struct {
	drawn []drawn
	// even says that the weights are equal: drawing needs no tables.
	even bool
	// first and second draw the two of a pair. In a pair, an endpoint appears with
	// exactly twice its share: then chance, where the scores say nothing, leaves
	// everybody its share. Drawing twice by weight would not do: of the weights 4,
	// 1 and 1 the first would be in 93 % of the pairs, and win half of them.
	// The first is drawn by Brewer's probabilities p(1-p)/(1-2p), the second by
	// weight among the rest (Brewer, "A model of systematic sampling with unequal
	// probabilities", 1963).
	first, second aliasTable
	// dominant is the endpoint whose share is a half or more, -1 if there is none.
	// It is in every pair, and second draws the other one. It competes evenly in
	// rivalry, of 2^32, pairs; in the others, which are what its share is above
	// chance, it gives way only to an endpoint that is dominance times better.
	dominant int
	rivalry  uint32

	tier uint8
	load float64 // share of the traffic
}

// drawn repeats the state pointer to save a cache line per draw.
type drawn struct {
	state *state
	entry *entry
	limit int // of entry
}

// dominance is how many times the score of a dominant endpoint may be that of
// another before its weight does not help it any more. Two is what one request in
// flight makes, and estimates are off by a third at times.
const dominance = 3

func newCandidates(share tierShare, members []drawn, weights []float64) candidates {
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

// pair draws two different candidates, of which there are two at least; random are
// fresh bits, and more can be had. Equal scores go to i, which either may be.
// favoured says that i is the dominant one in a pair that is not even.
func (c *candidates) pair(b *Balancer, random uint64, d *Decision) (i, j int, favoured bool) {
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
	// The order of a pair is not random yet. The last bit has no other weight.
	if low&1 == 0 {
		i, j = j, i
	}
	return i, j, false
}

// one draws one candidate by weight.
func (c *candidates) one(random uint32) *drawn {
	if len(c.drawn) == 1 {
		return &c.drawn[0]
	}
	return &c.drawn[c.second.draw(random)]
}

// choose draws a tier.
func (t *table) choose(random uint64) *candidates {
	x := unit(random)
	for i := range t.spill {
		if x -= t.spill[i].load; x < 0 {
			return &t.spill[i]
		}
	}
	return &t.near
}
