package selection

import (
	"cmp"
	"math"
	"slices"
	"sync/atomic"
)

// tierShare is the traffic of one tier.
type tierShare struct {
	tier uint8
	load float64 // of all traffic, 0 to 1
}

// tierShares divides the traffic among the tiers, nearest first, like Envoy's priority
// levels. A tier takes at most its healthy share, by weight, times overprovisioning; the
// rest goes to the next tier. If all tiers together cannot take all traffic, the loads are
// scaled up in proportion. If no endpoint is healthy, traffic is divided by weight.
// Endpoints of weight 0 do not count. Tiers without traffic are listed as well, because
// they may have half-open endpoints to try.
func tierShares(entries []entry, overprovisioning float64) []tierShare {
	type tier struct{ healthy, total float64 }
	var tiers [256]tier
	var shares []tierShare
	everything := 0.0
	for i := range entries {
		e := &entries[i]
		if e.Weight <= 0 {
			continue
		}
		t := &tiers[e.Tier]
		if t.total == 0 {
			shares = append(shares, tierShare{tier: e.Tier})
		}
		t.total += e.Weight
		everything += e.Weight
		if phase(e.state.phase.Load()) == active {
			t.healthy += e.Weight
		}
	}
	slices.SortFunc(shares, func(a, b tierShare) int { return cmp.Compare(a.tier, b.tier) })
	rest := 1.0
	for i := range shares {
		t := &tiers[shares[i].tier]
		shares[i].load = min(rest, t.healthy/t.total*overprovisioning)
		if rest -= shares[i].load; rest < 1e-9 {
			rest = 0
		}
	}
	for i := range shares {
		if rest == 1 {
			shares[i].load = tiers[shares[i].tier].total / everything
		} else {
			shares[i].load /= 1 - rest
		}
	}
	return shares
}

// ceil rounds up, but tolerates rounding errors in products that are whole numbers.
func ceil(x float64) int { return int(math.Ceil(x - 1e-9)) }

// tierHealth holds the statistics of a balancer about a tier as a whole. Every answer
// writes to it while requests of the tier fail.
type tierHealth struct {
	// failing is the share of failures, float32 bits, an EWMA with alpha 0.01.
	// Concurrent updates may be lost.
	failing atomic.Uint32
	// otherFailing is the lowest share of failures, float32 bits, expected in another tier
	// that could take the traffic; 1 if there is none.
	otherFailing atomic.Uint32

	// The fields below are used only with core.mu held.
	ended     uint64  // requests since the last time of unknownAfter without any
	lastEnded Instant // when compareTiers last saw an ended request

	_ [104]byte // pads to 128 bytes, so that no other data shares the cache lines
}

const (
	// unknownFailing is the failure share assumed for a tier without recent requests. With
	// 1/6, traffic moves to such a tier only when half of the requests of its own tier
	// fail, and not because of background failures that the other tier may have as well.
	unknownFailing = 1.0 / 6
	// knownAfter is the number of requests after which the failure share of a tier is
	// used. It is the number that the average spans.
	knownAfter = 100
	// unknownAfter is the time without requests after which the failure share of a tier is
	// discarded: it is outdated, and a high share from the past must not keep the traffic
	// in a tier that is worse now.
	unknownAfter = Instant(30e9)
)

func newTierHealth() *tierHealth {
	h := new(tierHealth)
	h.otherFailing.Store(math.Float32bits(1))
	return h
}

// count updates the failure share with one request.
func (h *tierHealth) count(failure float32) {
	failing := h.share()
	if failing == 0 && failure == 0 {
		return
	}
	failing += 0.01 * (failure - failing)
	if failing < 1e-6 {
		failing = 0
	}
	h.failing.Store(math.Float32bits(failing))
}

func (h *tierHealth) share() float32 { return math.Float32frombits(h.failing.Load()) }

// otherShare returns the lowest failure share expected in another tier.
func (h *tierHealth) otherShare() float32 { return math.Float32frombits(h.otherFailing.Load()) }

// expected returns the failure share to expect for traffic from other tiers.
func (h *tierHealth) expected() float32 {
	if h.ended >= knownAfter {
		return h.share()
	}
	return max(h.share(), unknownFailing)
}

// assignTiers gives each endpoint the health record of its tier. If the range has only one
// tier, whichever it is, that is the record of the range. b.mu is held.
func (b *core) assignTiers(entries []entry) {
	var old map[uint8]*tierHealth
	old, b.tiers = b.tiers, nil
	if len(tally(entries)) > 1 {
		b.tiers = make(map[uint8]*tierHealth)
	}
	for i := range entries {
		e := &entries[i]
		h := b.whole
		switch {
		case e.isApart():
			h = b.apart
		case b.tiers != nil:
			if b.tiers[e.Tier] == nil {
				if b.tiers[e.Tier] = old[e.Tier]; old[e.Tier] == nil {
					b.tiers[e.Tier] = newTierHealth()
				}
			}
			h = b.tiers[e.Tier]
		}
		e.state.tier.Store(h)
	}
}

// compareTiers sets tierHealth.otherFailing of each tier from the records of the others. b.mu
// is held.
func (b *core) compareTiers(entries []entry, now Instant) {
	if b.tiers == nil {
		return
	}
	for i := range entries {
		e := &entries[i]
		ended := e.state.done.Load()
		if ended != e.guarded.ended && !e.isApart() {
			h := b.tiers[e.Tier]
			h.ended += ended - e.guarded.ended
			h.lastEnded = now
			e.guarded.ended = ended
		}
	}
	for _, h := range b.tiers {
		if h.ended > 0 && now-h.lastEnded > unknownAfter {
			h.ended = 0
			h.failing.Store(0)
		}
	}
	counts := tally(entries)
	for tier, h := range b.tiers {
		lowest := float32(1)
		for _, c := range counts {
			if c.tier != tier && c.evicted <= maxEvicted(c.drawable) {
				lowest = min(lowest, b.tiers[c.tier].expected())
			}
		}
		h.otherFailing.Store(math.Float32bits(lowest))
	}
}

// tierCount is how many endpoints of weight > 0 a tier has (drawable), and how many of
// them are evicted or half-open (evicted). Other endpoints of weight 0 carry no traffic, so they are
// neither evicted nor counted, unless they are Apart.
type tierCount struct {
	tier              uint8
	drawable, evicted int
}

// tierCounts lists the tiers that have such endpoints, in no particular order.
type tierCounts []tierCount

func tally(entries []entry) (counts tierCounts) {
	for i := range entries {
		e := &entries[i]
		if e.Weight <= 0 {
			continue
		}
		c := counts.of(e.Tier)
		if c == nil {
			counts = append(counts, tierCount{tier: e.Tier})
			c = &counts[len(counts)-1]
		}
		c.drawable++
		if phase(e.state.phase.Load()) != active {
			c.evicted++
		}
	}
	return counts
}

// tallyApart counts the endpoints that are Apart.
func tallyApart(entries []entry) (c tierCount) {
	for i := range entries {
		if e := &entries[i]; e.isApart() {
			c.drawable++
			if phase(e.state.phase.Load()) != active {
				c.evicted++
			}
		}
	}
	return c
}

// evictable returns the count of the endpoints with which e is compared, and whether one more of them
// may be evicted.
func (t *table) evictable(e *entry) (tierCount, bool) {
	if e.isApart() {
		return t.apart, t.apart.evicted+1 <= maxEvicted(t.apart.drawable)
	}
	c := t.counts.of(e.Tier)
	if c == nil || e.Weight <= 0 {
		return tierCount{}, false
	}
	return *c, !t.counts.full(e.Tier)
}

// of returns the count of a tier, nil for a tier without endpoints of weight > 0.
func (counts tierCounts) of(tier uint8) *tierCount {
	for i := range counts {
		if counts[i].tier == tier {
			return &counts[i]
		}
	}
	return nil
}

// full reports whether no more of the tier may be evicted: the limit of the tier is
// reached, and no other tier is within its limit.
func (counts tierCounts) full(tier uint8) bool {
	for _, c := range counts {
		if c.tier == tier && c.evicted+1 <= maxEvicted(c.drawable) || c.tier != tier && c.evicted <= maxEvicted(c.drawable) {
			return false
		}
	}
	return true
}

// excess reports whether every tier exceeds its limit of maxEvicted.
func (counts tierCounts) excess() bool {
	for _, c := range counts {
		if c.evicted <= maxEvicted(c.drawable) {
			return false
		}
	}
	return len(counts) > 0
}
