package affinity

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strconv"

	"github.com/ringway/ringway/ring"
)

// Serving returns how many relays of a fleet serve a service with a number of workers, of which
// RelaysPerService, WholeRange, Minimums and Strategy decide. Unless a number is set it is 10, as
// many as leave each relay about 16 workers, or the whole fleet, whichever is in between, and never
// less than the relays that each worker needs. A large service needs the connections and the
// processors of all relays, and then most requests reach a relay that serves it.
//
// Above 16 the result is one of few numbers (18, 20, … 30, 32, 36, … 60, 64, 72, …) and
// below the size of the fleet: a relay that is left over replaces one that leaves, and all
// others keep their ranges. By [Rendezvous] a service that needs all relays has all: one that
// leaves moves no connection of others.
func (c PlanConfig) Serving(relays, workers int) int {
	c = c.WithDefaults()
	m := c.Minimums.PeersPerWorker
	switch {
	case c.RelaysPerService != 0:
		return min(relays, c.RelaysPerService)
	case c.WholeRange:
		return min(relays, max(autoLeast, m))
	case c.Strategy == Rendezvous && m*workers/autoWorkers >= relays:
		return relays
	}
	// A step below the minimum would leave each worker with fewer relays.
	return max(min(relays, m), step(min(relays, max(autoLeast, m*workers/autoWorkers))))
}

const (
	// autoLeast is the number of relays of a small service, as in Hyperbahn.
	autoLeast = 10
	// autoWorkers is how many workers a relay of a large service connects to, at least: the
	// balancer needs about that many to choose from. With fewer relays, more requests would
	// take a hop.
	autoWorkers = 16
)

// step returns n up to 16, and above it the largest number below n of the form a·2^e with
// 8 <= a <= 15. Fleets often have a round number of relays, such as 32, 50 or 96. There,
// a relay that leaves must not change the step.
func step(n int) int {
	if n <= 16 {
		return n
	}
	drop := bits.Len(uint(n-1)) - 4
	return (n - 1) >> drop << drop
}

// affine returns the relays that serve the service, by index, and what the next plan may reuse.
// served are the places whose zones have workers.
func (c *PlanConfig) affine(served []Place) ([]Relay, *choice, error) {
	if kept := c.sameChoice(served); kept != nil {
		out := make([]Relay, len(kept.serving))
		for i, at := range kept.serving {
			out[i] = c.Relays[at]
		}
		return out, kept, nil
	}
	byID := make(map[string]int, len(c.Relays))
	ids := make([]string, len(c.Relays))
	for i, relay := range c.Relays {
		ids[i] = relay.ID
		byID[relay.ID] = i
	}
	ids = ring.Order(c.Service, ids)
	if err := checkIDs("relay", ids); err != nil {
		return nil, nil, c.named(err)
	}
	ids = slices.DeleteFunc(ids, func(id string) bool { return slices.Contains(c.Skip, id) })
	if len(ids) == 0 {
		return nil, nil, c.named(fmt.Errorf("%w to choose from: all %d are on the skip list: take one off it", ErrNoRelays, len(c.Relays)))
	}
	eligible := len(ids)
	// Slots are needed if they define the index, or to choose k of more relays.
	if k := c.serving(eligible, served); c.IndexSource == IndexSlot || k < len(ids) {
		chosen := c.slotHoldersByPlace(k, ids, served, byID)
		if c.IndexSource == IndexRank {
			chosen = ring.Order(c.Service, chosen)
		}
		ids = chosen
	}
	out, at := make([]Relay, len(ids)), make([]int32, len(ids))
	for i, id := range ids {
		at[i] = int32(byID[id])
		out[i] = c.Relays[at[i]]
	}
	return out, c.newChoice(eligible, at, served), nil
}

// homes returns the places of relays whose zones have workers, in the order of the relays. A zone is a
// datacenter: members of it may state its region or not.
func (c *PlanConfig) homes(workers []Place) []Place {
	all := placesOf(len(c.Relays), func(i int) *Place { return &c.Relays[i].Place }).distinct
	return slices.DeleteFunc(all, func(place Place) bool {
		return !slices.ContainsFunc(workers, func(w Place) bool { return w == place || w.Tier(place) == SameDatacenter })
	})
}

// serving returns the number of affine relays of this fleet, where served are the places whose
// zones have workers. With an automatic number there are enough for each of these to have PeersPerWorker, so
// that its requests need no relay and no worker of another place.
func (c *PlanConfig) serving(eligible int, served []Place) int {
	k := c.Serving(eligible, len(c.Workers))
	if c.RelaysPerService != 0 || c.WholeRange || c.IndexSource == IndexRank || len(served)*c.Minimums.PeersPerWorker <= k {
		return k
	}
	relays := map[Place]int{}
	for i := range c.Relays {
		if !slices.Contains(c.Skip, c.Relays[i].ID) {
			relays[c.Relays[i].Place]++
		}
	}
	least := 0
	for _, place := range served {
		least += min(relays[place], c.Minimums.PeersPerWorker)
	}
	return max(k, least)
}

// slotHoldersByPlace divides k slots among the places of relays, and gives each place holders of its
// own: a place that loses relays must not move the ranges in another. Where all relays are in one
// place, and by rank, the whole fleet holds the slots.
func (c *PlanConfig) slotHoldersByPlace(k int, eligible []string, served []Place, byID map[string]int) []string {
	members := map[Place][]string{}
	for _, id := range eligible {
		place := c.Relays[byID[id]].Place
		members[place] = append(members[place], id)
	}
	if len(members) == 1 || c.IndexSource == IndexRank {
		return c.slotHolders(k, eligible)
	}
	out := make([]string, k)
	for place, slots := range c.slotsOfPlaces(k, members, c.quotas(k, members, served)) {
		for i, id := range slotHolders(c.Service, len(slots), members[place]) {
			out[slots[i]] = id
		}
	}
	return out
}

// slotsOfPlaces returns the slots of each place, in ascending order. The best pair of all slots and
// places is matched first, then the best of the rest, while the place has room. So it depends on
// the numbers of slots alone, and where one place gets a slot more and another one fewer, few move.
func (c *PlanConfig) slotsOfPlaces(k int, members map[Place][]string, room map[Place]int) map[Place][]int {
	order := c.placeOrder(members)
	names := make([]string, len(order))
	for i, place := range order {
		names[i] = place.key()
	}
	hashes, numbers := slotHashes(c.Service, k, names)
	var pairs []scored // index: the slot times the number of places, plus the place
	for slot, number := range numbers {
		for i, hash := range hashes {
			if room[order[i]] > 0 {
				pairs = append(pairs, scored{pairHash(number, hash), slot*len(order) + i})
			}
		}
	}
	slices.SortFunc(pairs, func(a, b scored) int {
		if a.ahead(b) {
			return -1
		}
		return 1
	})
	taken, out := make([]bool, k), make(map[Place][]int, len(order))
	for _, pair := range pairs {
		slot, place := pair.index/len(order), order[pair.index%len(order)]
		if !taken[slot] && room[place] > 0 {
			taken[slot] = true
			room[place]--
			out[place] = append(out[place], slot)
		}
	}
	for _, slots := range out {
		slices.Sort(slots)
	}
	return out
}

// quotas divides k slots among the places of relays: first PeersPerWorker for each place that has
// workers, or fewer if k is too small, and the rest in proportion to the relays, by the method of
// Sainte-Laguë (each slot goes to the place with the most relays per slot). The number of relays
// counts in steps, so that one relay that comes or goes rarely moves a slot to another place.
func (c *PlanConfig) quotas(k int, members map[Place][]string, served []Place) map[Place]int {
	out := make(map[Place]int, len(members))
	for least := c.Minimums.PeersPerWorker; least > 0; least-- {
		sum := 0
		for _, place := range served {
			out[place] = min(least, len(members[place]))
			sum += out[place]
		}
		if sum <= k {
			k -= sum
			break
		}
		clear(out)
	}
	order := c.placeOrder(members)
	for ; k > 0; k-- {
		best := none
		for i, place := range order {
			if out[place] == len(members[place]) {
				continue
			}
			if best == none || step(len(members[place]))*(2*out[order[best]]+1) > step(len(members[order[best]]))*(2*out[place]+1) {
				best = i
			}
		}
		out[order[best]]++ // k is at most the number of relays
	}
	return out
}

// key returns a text that no other place has.
func (p Place) key() string { return strconv.Quote(p.Region) + p.Datacenter }

// placeOrder orders places by a hash that differs from service to service: the places that come
// first get the slots that no proportion decides.
func (c *PlanConfig) placeOrder(members map[Place][]string) []Place {
	names := make(map[string]Place, len(members))
	for place := range members {
		names[place.key()] = place
	}
	out := make([]Place, 0, len(names))
	for _, name := range ring.Order(c.Service, slices.Collect(maps.Keys(names))) {
		out = append(out, names[name])
	}
	return out
}
