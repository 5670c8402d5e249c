package affinity

import (
	"fmt"
	"math/bits"
	"slices"

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
func (c *PlanConfig) affine() ([]Relay, *choice, error) {
	if kept := c.sameChoice(); kept != nil {
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
	if k := c.Serving(len(ids), len(c.Workers)); c.IndexSource == IndexSlot || k < len(ids) {
		chosen := c.slotHolders(k, ids)
		if c.IndexSource == IndexRank {
			chosen = ring.Order(c.Service, chosen)
		} else {
			c.slotsOfPlaces(chosen, ids, byID)
		}
		ids = chosen
	}
	out, at := make([]Relay, len(ids)), make([]int32, len(ids))
	for i, id := range ids {
		at[i] = int32(byID[id])
		out[i] = c.Relays[at[i]]
	}
	return out, c.newChoice(eligible, at), nil
}

// slotsOfPlaces gives each place slots of its own, as many as it has among the chosen relays:
// a place that loses relays must not move the ranges in another. Where all relays are in one
// place, nothing changes.
func (c *PlanConfig) slotsOfPlaces(chosen, all []string, byID map[string]int) {
	members, places := map[Place][]string{}, map[Place][]int{}
	for _, id := range all {
		place := c.Relays[byID[id]].Place
		members[place] = append(members[place], id)
	}
	if len(members) == 1 {
		return
	}
	for i, id := range chosen {
		place := c.Relays[byID[id]].Place
		places[place] = append(places[place], i)
	}
	for place, at := range places {
		for i, id := range slotHolders(c.Service, len(at), members[place]) {
			chosen[at[i]] = id
		}
	}
}
