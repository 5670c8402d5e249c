package affinity

import (
	"cmp"
	"slices"
	"strings"

	"github.com/ringway/ringway/ring"
)

// choice is which relays serve a service, and what that depends on in addition to the name of the
// service.
type choice struct {
	fleet    []identity // all relays, in the order of PlanConfig.Relays
	skip     []string
	source   IndexSource
	eligible int     // relays of the fleet that are not skipped
	served   []Place // places whose zones have workers
	least    int     // Minimums.PeersPerWorker
	serving  []int32 // indexes in fleet
	onePlace bool    // all relays of the fleet have the same place
}

// identity is what decides whether a relay is chosen.
type identity struct {
	id string
	Place
}

// choiceKept is the number of relays from which on a plan keeps how they were chosen. To choose
// fewer again costs some 20 µs, and a fleet may have thousands of small services.
const choiceKept = 32

// newChoice returns what a later plan needs to reuse the choice, nil if that does not pay.
func (c *PlanConfig) newChoice(eligible int, serving []int32, served []Place) *choice {
	if len(serving) < choiceKept {
		return nil
	}
	out := &choice{fleet: make([]identity, len(c.Relays)), skip: slices.Clone(c.Skip), source: c.IndexSource, eligible: eligible, served: served, least: c.Minimums.PeersPerWorker, serving: serving, onePlace: true}
	for i := range c.Relays {
		out.fleet[i] = identity{c.Relays[i].ID, c.Relays[i].Place}
		out.onePlace = out.onePlace && c.Relays[i].Place == c.Relays[0].Place
	}
	return out
}

// sameChoice returns the choice of the previous plan if it is the one of this plan, otherwise nil.
func (c *PlanConfig) sameChoice(served []Place) *choice {
	if c.Previous == nil || c.Previous.choice == nil || c.Previous.service != c.Service {
		return nil
	}
	old := c.Previous.choice
	if old.source != c.IndexSource || old.least != c.Minimums.PeersPerWorker || len(old.serving) != c.serving(old.eligible, served) || !slices.Equal(old.skip, c.Skip) ||
		!slices.Equal(old.served, served) || !slices.EqualFunc(old.fleet, c.Relays, func(a identity, b Relay) bool { return a.id == b.ID && a.Place == b.Place }) {
		return nil
	}
	return old
}

// slotHolders returns what the function of this name does, from the slots of the previous plan if
// few relays have come or gone since.
//
// There is only one stable matching: slots and relays rank each other by the same scores. So the
// matching may be repaired in any order. First each slot without a relay takes the best of those
// that prefer it to their own, whose slot then does the same. Then each new relay takes the best of
// the slots that prefer it, whose relay then does the same.
func (c *PlanConfig) slotHolders(k int, eligible []string) []string {
	if c.Previous == nil || c.Previous.choice == nil || c.Previous.service != c.Service {
		return slotHolders(c.Service, k, eligible)
	}
	old := c.Previous.choice
	if len(old.serving) != k || old.source != IndexSlot || !old.onePlace {
		return slotHolders(c.Service, k, eligible)
	}
	relays := slices.Sorted(slices.Values(eligible))
	m := matching{relayOf: make([]int, k), slotOf: make([]int, len(relays)), away: make([]bool, len(relays))}
	for i := range relays {
		m.slotOf[i], m.away[i] = none, true
	}
	for _, relay := range old.fleet {
		if i, there := slices.BinarySearch(relays, relay.id); there && !slices.Contains(old.skip, relay.id) {
			m.away[i] = false
		}
	}
	changes := 0
	for s, at := range old.serving {
		m.relayOf[s] = none
		if i, there := slices.BinarySearch(relays, old.fleet[at].id); there {
			m.relayOf[s], m.slotOf[i] = i, s
		} else {
			changes++
		}
	}
	for _, away := range m.away {
		if away {
			changes++
		}
	}
	// Each change costs two passes or more over relays or slots, and all anew about 20.
	if changes > 5 {
		return slotHolders(c.Service, k, eligible)
	}
	m.relays, m.slots = slotHashes(c.Service, k, relays)
	for s, relay := range m.relayOf {
		if relay == none && !m.fill(s) {
			return slotHolders(c.Service, k, eligible)
		}
	}
	for i, away := range m.away {
		if away {
			m.place(i)
		}
	}
	out := make([]string, k)
	for s, i := range m.relayOf {
		out[s] = relays[i]
	}
	return out
}

// matching is the matching of slots and relays while it is repaired.
type matching struct {
	relays, slots   []uint64 // hashes
	relayOf, slotOf []int    // of each slot and of each relay; none if it has none
	away            []bool   // relays that do not take part yet
}

const none = -1

func (m *matching) score(slot, relay int) uint64 { return pairHash(m.slots[slot], m.relays[relay]) }

// fill gives a slot without a relay its relay. It reports whether there are enough relays.
func (m *matching) fill(slot int) bool {
	for slot != none {
		best := scored{index: none}
		for i, away := range m.away {
			if away {
				continue
			}
			offer := scored{m.score(slot, i), i}
			if best.index != none && !offer.ahead(best) {
				continue
			}
			if own := m.slotOf[i]; own == none || (scored{offer.score, slot}).ahead(scored{m.score(own, i), own}) {
				best = offer
			}
		}
		if best.index == none {
			return false
		}
		m.relayOf[slot] = best.index
		slot, m.slotOf[best.index] = m.slotOf[best.index], slot
	}
	return true
}

// place gives a new relay its slot, if it gets one.
func (m *matching) place(relay int) {
	m.away[relay] = false
	for {
		best := scored{index: none}
		for s, own := range m.relayOf {
			offer := scored{m.score(s, relay), s}
			if best.index != none && !offer.ahead(best) {
				continue
			}
			if (scored{offer.score, relay}).ahead(scored{m.score(s, own), own}) {
				best = offer
			}
		}
		if best.index == none {
			return
		}
		m.slotOf[relay] = best.index
		relay, m.relayOf[best.index] = m.relayOf[best.index], relay
		m.slotOf[relay] = none
	}
}

// idsOfWorkers are the ids of the workers of a plan.
type idsOfWorkers struct {
	all []string
	new []string // those among which the ids are that the previous plan does not have
}

// idsInOrder returns the ids of the workers and whether they are strictly in ring order. It computes
// hashes only between the first and the last difference to the previous plan.
func (c *PlanConfig) idsInOrder() (ids idsOfWorkers, ordered bool) {
	var old []string
	if c.Previous != nil && c.Previous.service == c.Service {
		old = c.Previous.workers
	}
	most := min(len(old), len(c.Workers))
	head, tail := 0, 0
	for head < most && c.Workers[head].ID == old[head] {
		head++
	}
	if head == len(old) && head == len(c.Workers) {
		return idsOfWorkers{all: old}, true
	}
	for tail < most-head && c.Workers[len(c.Workers)-1-tail].ID == old[len(old)-1-tail] {
		tail++
	}
	all := make([]string, len(c.Workers))
	copy(all, old[:head])
	copy(all[len(all)-tail:], old[len(old)-tail:])
	for i := head; i < len(all)-tail; i++ {
		all[i] = c.Workers[i].ID
	}
	ids = idsOfWorkers{all, all[head : len(all)-tail]}
	// With the neighbours of the differences.
	from, to := max(0, head-1), max(0, tail-1)
	return ids, inOrder(c.Service, all[from:len(all)-to], old[from:len(old)-to])
}

// inOrder reports whether ids are strictly in ring order, as old is. It computes the hashes only of
// ids that are in one of them, and of their neighbours.
//
// Ids that are in old, too, are in order if each follows the last one in old. Another id is compared
// with the id before it, and is below the next one that is in old, because those below the id are
// passed first.
func inOrder(service string, ids, old []string) bool {
	if len(old) == 0 {
		return ring.IsOrdered(service, ids)
	}
	seed := ring.Hash(service, 0)
	before := func(a, b string) bool {
		return cmp.Or(cmp.Compare(ring.Hash(a, seed), ring.Hash(b, seed)), strings.Compare(a, b)) < 0
	}
	for i, id := range ids {
		for len(old) > 0 && old[0] != id && before(old[0], id) {
			old = old[1:]
		}
		if len(old) > 0 && old[0] == id {
			old = old[1:]
		} else if i > 0 && !before(ids[i-1], id) {
			return false
		}
	}
	return true
}
