package affinity

import (
	"slices"
	"strconv"

	"github.com/ringway/ringway/ring"
)

// slotHolders returns the relays that serve a service: the relay at index i holds the slot
// "service~i". k slots choose among relays by rendezvous hashing, one relay per slot;
// when there are fewer relays than k, every relay gets a slot and there are as many slots
// as relays. The order of relays does not matter and repeats count once. The result is
// empty when k is below 1 or there are no relays.
//
// The choice is the stable matching in which slot and relay rank each other by the same
// hash of the pair: equivalently, the best pair of all is matched, then the best of the
// remaining pairs, and so on. A relay that leaves frees its slot. The free slot takes
// another relay only if their score exceeds the score of that relay's own slot; with more
// relays than slots such chains are short. Taking the owner of each slot from a plain ring
// instead would let one relay hold two slots and leave the service with fewer than k
// relays, as in Hyperbahn.
func slotHolders(service string, k int, relays []string) []string {
	relays = slices.Clone(relays)
	slices.Sort(relays)
	relays = slices.Compact(relays)
	k = min(k, len(relays))
	if k < 1 {
		return nil
	}

	hashes, numbers := slotHashes(service, k, relays)
	slots := make([]slot, k)
	lists := make([]scored, k*lookAhead)
	for i := range slots {
		slots[i].hash = numbers[i]
		slots[i].batch = lists[i*lookAhead : i*lookAhead : (i+1)*lookAhead]
	}
	// Deferred acceptance (Gale and Shapley, 1962): a slot asks relays in descending order
	// of score; a relay keeps the best slot that has asked so far, and the slot that it
	// rejects asks its next relay.
	type holding struct {
		best  scored // of the slot, by its number
		taken bool
	}
	held := make([]holding, len(relays))
	for i := range slots {
		for asking := i; ; {
			next := slots[asking].next(hashes)
			owner, offer := &held[next.index], scored{next.score, asking}
			if !owner.taken {
				*owner = holding{offer, true}
				break
			}
			if offer.ahead(owner.best) {
				asking, owner.best = owner.best.index, offer
			}
		}
	}

	out := make([]string, k)
	for i, h := range held {
		if h.taken {
			out[h.best.index] = relays[i]
		}
	}
	return out
}

// slotHashes returns the hashes of relays and of k slots. pairHash makes scores of them.
func slotHashes(service string, k int, relays []string) (ofRelays, ofSlots []uint64) {
	seed := ring.Hash(service, 0)
	ofRelays, ofSlots = make([]uint64, len(relays)), make([]uint64, k)
	for i, relay := range relays {
		ofRelays[i] = ring.Hash(relay, seed)
	}
	for i := range ofSlots {
		ofSlots[i] = ring.Hash(service+"~"+strconv.Itoa(i), 0)
	}
	return ofRelays, ofSlots
}

// slot yields its candidates among the relays, best first. Few are ever needed, so slot computes
// lookAhead candidates at a time instead of sorting all relays.
type slot struct {
	hash  uint64
	batch []scored // the current batch of candidates, best first; next returns those from at on
	at    int
}

// lookAhead is the number of candidates in a batch. Each batch costs a pass over the relays.
// Eight suffice for nearly every slot when as many slots as relays compete.
const lookAhead = 8

// next returns the best candidate that it has not returned yet. The caller calls next at most
// once per relay.
func (s *slot) next(relays []uint64) scored {
	if s.at == len(s.batch) {
		s.refill(relays)
	}
	s.at++
	return s.batch[s.at-1]
}

func (s *slot) refill(relays []uint64) {
	begun := len(s.batch) > 0
	var last scored
	if begun {
		last = s.batch[len(s.batch)-1]
	}
	best, worst := s.batch[:0], uint64(0)
	for i, relay := range relays {
		candidate := scored{pairHash(s.hash, relay), i}
		if len(best) == lookAhead && candidate.score < worst || begun && !last.ahead(candidate) {
			continue // score too low, or in an earlier batch
		}
		best = keepBest(best, lookAhead, candidate)
		worst = best[len(best)-1].score
	}
	s.batch, s.at = best, 0
}
