package affinity

import (
	"slices"
	"strconv"

	"github.com/ringway/ringway/ring"
)

// Slots returns the relays that serve a service: the value at index i holds the slot
// "service~i". k slots choose among relays by rendezvous hashing, one relay per slot;
// when there are fewer relays than k, every relay gets a slot and there are as many slots
// as relays. The order of relays does not matter and repeats count once. The result is
// empty when k is below 1 or there are no relays.
//
// The choice is the stable matching in which slot and relay rank each other by the same
// hash of the pair: equivalently, the best pair of all is matched, then the best of what
// is left, and so on. A relay that leaves frees its slot, which moves another relay only
// if it outbids that relay's own slot; with relays to spare such chains are short. Taking
// the owner of each slot from a plain ring instead would let one relay hold two slots and
// leave the service with fewer than k relays, as Hyperbahn did.
func Slots(service string, k int, relays []string) []string {
	relays = slices.Clone(relays)
	slices.Sort(relays)
	relays = slices.Compact(relays)
	k = min(k, len(relays))
	if k < 1 {
		return nil
	}

	seed := ring.Hash(service, 0)
	hashes := make([]uint64, len(relays))
	for i, relay := range relays {
		hashes[i] = ring.Hash(relay, seed)
	}
	slots := make([]slot, k)
	lists := make([]bid, k*lookAhead)
	for i := range slots {
		slots[i].hash = ring.Hash(service+"~"+strconv.Itoa(i), 0)
		slots[i].given = lists[i*lookAhead : i*lookAhead : (i+1)*lookAhead]
	}
	// Deferred acceptance (Gale and Shapley, 1962): a slot asks relays from its best down;
	// a relay keeps the best that has asked so far and sends the other on.
	type holding struct {
		bid   bid // of the slot, by its number
		taken bool
	}
	held := make([]holding, len(relays))
	for i := range slots {
		for asking := i; ; {
			next := slots[asking].next(hashes)
			owner, offer := &held[next.index], bid{next.score, asking}
			if !owner.taken {
				*owner = holding{offer, true}
				break
			}
			if offer.ahead(owner.bid) {
				asking, owner.bid = owner.bid.index, offer
			}
		}
	}

	out := make([]string, k)
	for i, h := range held {
		if h.taken {
			out[h.bid.index] = relays[i]
		}
	}
	return out
}

// slot yields its bids for relays from the best down. Few are ever asked for, so it looks
// a handful ahead instead of sorting all relays.
type slot struct {
	hash  uint64
	given []bid // the next best bids; those from at on are still to be given out
	at    int
}

// lookAhead costs a pass over the relays each time it runs out: long enough for nearly
// every slot when as many slots as relays compete.
const lookAhead = 8

// next returns the best bid not yet given out. The caller asks at most once per relay.
func (s *slot) next(relays []uint64) bid {
	if s.at == len(s.given) {
		s.refill(relays)
	}
	s.at++
	return s.given[s.at-1]
}

func (s *slot) refill(relays []uint64) {
	begun := len(s.given) > 0
	var last bid
	if begun {
		last = s.given[len(s.given)-1]
	}
	best, worst := s.given[:0], uint64(0)
	for i, relay := range relays {
		candidate := bid{pairHash(s.hash, relay), i}
		if len(best) == lookAhead && candidate.score < worst || begun && !last.ahead(candidate) {
			continue // too low, or given out before
		}
		best = keepBest(best, lookAhead, candidate)
		worst = best[len(best)-1].score
	}
	s.given, s.at = best, 0
}
