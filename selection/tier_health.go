package selection

import (
	"math"
	"sync/atomic"
)

// tierHealth is what a balancer knows about a tier as a whole. Every answer writes
// to it while something fails.
type tierHealth struct {
	// failing is the share of failures, float32 bits, an EWMA with alpha 0.01.
	// Racing updates may be lost.
	failing atomic.Uint32
	// elsewhere is the lowest share of failures, float32 bits, to be expected in
	// another tier that could take the traffic; 1 where there is none.
	elsewhere atomic.Uint32

	// The rest belongs to Refresh.
	ended uint64  // requests since the last silence
	heard Instant // when the last look saw that some had ended

	_ [104]byte // to 128, which are a cache line of their own
}

const (
	// unknownFailing is expected of a tier that nobody has tried of late. So a tier
	// is left for it only when half of its requests fail, and not for the background
	// failures that it may well have, too.
	unknownFailing = 1.0 / 6
	// A tier is known by so many requests, what the average spans,
	knownAfter = 100
	// and until it has been silent for so long: what it did then says little, and a
	// bad past must not keep the traffic for ever in a tier that is worse now.
	unknownAfter = Instant(30e9)
)

func newTierHealth() *tierHealth {
	h := new(tierHealth)
	h.elsewhere.Store(math.Float32bits(1))
	return h
}

// count follows the failure share and returns it.
func (h *tierHealth) count(failure float32) float32 {
	failing := h.share()
	if failing == 0 && failure == 0 {
		return 0
	}
	failing += 0.01 * (failure - failing)
	if failing < 1e-6 {
		failing = 0
	}
	h.failing.Store(math.Float32bits(failing))
	return failing
}

func (h *tierHealth) share() float32 { return math.Float32frombits(h.failing.Load()) }

// others is elsewhere.
func (h *tierHealth) others() float32 { return math.Float32frombits(h.elsewhere.Load()) }

// expected is the failure share that traffic from other tiers would meet.
func (h *tierHealth) expected() float32 {
	if h.ended >= knownAfter {
		return h.share()
	}
	return max(h.share(), unknownFailing)
}

// assignTiers gives each endpoint the record of its tier. A range of one tier,
// whatever its number, has that of the range. b.mu is held.
func (b *Balancer) assignTiers(entries []entry) {
	var old map[uint8]*tierHealth
	old, b.tiers = b.tiers, nil
	if len(tally(entries)) > 1 {
		b.tiers = make(map[uint8]*tierHealth)
	}
	for i := range entries {
		e := &entries[i]
		h := b.whole
		if b.tiers != nil {
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

// compareTiers tells each tier what the others are like. b.mu is held.
func (b *Balancer) compareTiers(entries []entry, now Instant) {
	if b.tiers == nil {
		return
	}
	for i := range entries {
		e := &entries[i]
		ended := e.state.done.Load()
		if ended != e.member.ended {
			h := b.tiers[e.Tier]
			h.ended += ended - e.member.ended
			h.heard = now
			e.member.ended = ended
		}
	}
	for _, h := range b.tiers {
		if h.ended > 0 && now-h.heard > unknownAfter {
			h.ended = 0
			h.failing.Store(0)
		}
	}
	counts := tally(entries)
	for tier, h := range b.tiers {
		lowest := float32(1)
		for _, c := range counts {
			if c.tier != tier && c.out <= maxOut(c.drawable) {
				lowest = min(lowest, b.tiers[c.tier].expected())
			}
		}
		h.elsewhere.Store(math.Float32bits(lowest))
	}
}

// tierCount is how many endpoints of weight > 0 a tier has, and how many of them
// are evicted or half-open. Endpoints of weight 0 carry no traffic: losing them
// costs nothing, so they are neither evicted nor counted.
type tierCount struct {
	tier          uint8
	drawable, out int
}

// tierCounts are of the tiers that have such endpoints, in no order: a handful.
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
			c.out++
		}
	}
	return counts
}

// of returns nil for a tier without endpoints of weight > 0.
func (counts tierCounts) of(tier uint8) *tierCount {
	for i := range counts {
		if counts[i].tier == tier {
			return &counts[i]
		}
	}
	return nil
}

// full reports whether no more of the tier may be evicted: a third of it is out,
// and no other tier has two thirds of its own.
func (counts tierCounts) full(tier uint8) bool {
	for _, c := range counts {
		if c.tier == tier && c.out+1 <= maxOut(c.drawable) || c.tier != tier && c.out <= maxOut(c.drawable) {
			return false
		}
	}
	return true
}

// excess reports whether more than a third is out in every tier.
func (counts tierCounts) excess() bool {
	for _, c := range counts {
		if c.out <= maxOut(c.drawable) {
			return false
		}
	}
	return len(counts) > 0
}

// tierSet is a set of tiers.
type tierSet [4]uint64

func (s *tierSet) add(tier uint8)      { s[tier>>6] |= 1 << (tier & 63) }
func (s *tierSet) has(tier uint8) bool { return s[tier>>6]>>(tier&63)&1 != 0 }
