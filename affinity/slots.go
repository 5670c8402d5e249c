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

	bidders := make([]bidder, k)
	for slot := range bidders {
		bidders[slot].seed = ring.Hash(service+"~"+strconv.Itoa(slot), 0)
		bidders[slot].slot = slot
	}
	// Deferred acceptance (Gale and Shapley, 1962): a slot asks relays from its best down;
	// a relay keeps the best that has asked so far and sends the other on.
	type holding struct {
		bid   bid
		taken bool
	}
	held := make([]holding, len(relays))
	for slot := range bidders {
		for asking := slot; ; {
			next := bidders[asking].next(relays)
			owner := &held[next.relay]
			if !owner.taken {
				*owner = holding{next, true}
				break
			}
			if next.ahead(owner.bid) {
				asking, owner.bid = owner.bid.slot, next
			}
		}
	}

	out := make([]string, k)
	for i, h := range held {
		if h.taken {
			out[h.bid.slot] = relays[i]
		}
	}
	return out
}

// bid is a pair of slot and relay with its hash.
type bid struct {
	score uint64
	slot  int
	relay int // in the sorted relays
}

// ahead orders all pairs: by score, ties by relay id, then by slot.
func (a bid) ahead(b bid) bool {
	if a.score != b.score {
		return a.score > b.score
	}
	if a.relay != b.relay {
		return a.relay < b.relay
	}
	return a.slot < b.slot
}

// bidder yields a slot's bids from the best down. Few are ever asked for, so it looks a
// handful ahead instead of sorting all relays.
type bidder struct {
	seed  uint64
	slot  int
	ahead [4]bid // the next best bids; [at:fill] are still to be given out
	at    int
	fill  int
	begun bool
}

// next returns the best bid not yet given out. The caller asks at most once per relay.
func (b *bidder) next(relays []string) bid {
	if b.at == b.fill {
		b.refill(relays)
	}
	b.at++
	return b.ahead[b.at-1]
}

func (b *bidder) refill(relays []string) {
	var last bid
	if b.begun {
		last = b.ahead[b.fill-1]
	}
	n := 0
	for i, relay := range relays {
		candidate := bid{ring.Hash(relay, b.seed), b.slot, i}
		if b.begun && !last.ahead(candidate) {
			continue // given out before
		}
		if n == len(b.ahead) {
			if !candidate.ahead(b.ahead[n-1]) {
				continue
			}
			n--
		}
		at := n
		for ; at > 0 && candidate.ahead(b.ahead[at-1]); at-- {
			b.ahead[at] = b.ahead[at-1]
		}
		b.ahead[at] = candidate
		n++
	}
	b.at, b.fill, b.begun = 0, n, true
}
