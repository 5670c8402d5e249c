package affinity

import (
	"cmp"
	"slices"
	"strings"
)

// zones divides traffic among the places of relays and workers. A zone is what the settings call
// a datacenter.
type zones struct {
	relays, workers places
	minimums        Minimums

	reach []Tier    // of each place of relays: the farthest tier in which they are at home
	flow  [][]int64 // from each place of relays to each place of workers; sums to wholeSupply
}

// zoneConfig is the input of zones.
type zoneConfig struct {
	relays, workers places
	minimums        Minimums
	perTier         int       // workers that a relay must reach before it ignores farther tiers
	slack           float64   // see PlanConfig.ZoneSlack
	supply          []float64 // of each relay, nil if all carry the same
	weights         []float64 // of each worker, nil if all are equal
}

// newZones divides the traffic: each zone keeps its own until its workers would get slack times
// the mean load. The rest goes to zones of the region that have room, then to any.
//
// A relay is at home in its own zone. If that has fewer than perTier workers, the relay is at
// home in its region as well, and if the region has too few, everywhere.
//
// Because places form a tree (zones in regions), serving the nearest first crosses as little as
// possible. Zones are served in the order of their names, so that few pairs of zones exchange
// traffic. Everything is computed in integers.
func newZones(c zoneConfig) *zones {
	z := &zones{relays: c.relays, workers: c.workers, minimums: c.minimums, flow: make([][]int64, len(c.relays.distinct))}
	for from := range z.flow {
		z.flow[from] = make([]int64, len(c.workers.distinct))
	}
	z.findReach(c.perTier)
	if len(z.relays.distinct) == 1 && len(z.workers.distinct) == 1 {
		z.flow[0][0] = wholeSupply
		return z
	}
	left := make([]int64, len(c.relays.distinct))
	for i, supply := range apportion(wholeSupply, c.supply, len(c.relays.of)) {
		left[c.relays.of[i]] += supply
	}
	share := make([]int64, len(c.workers.distinct))
	for i, part := range apportion(wholeSupply, c.weights, len(c.workers.of)) {
		share[c.workers.of[i]] += part
	}
	room := make([]int64, len(share))
	for to := range room {
		room[to] = int64(float64(c.slack*float64(share[to]))) + negligible
	}
	froms, tos := namesInOrder(c.relays.distinct), namesInOrder(c.workers.distinct)
	send := func(from, to int, most int64) {
		n := min(left[from], room[to], most)
		// The room that rounding leaves is negligible, and a few units more.
		if n <= 2*negligible && c.relays.distinct[from].Tier(c.workers.distinct[to]) != SameDatacenter {
			return
		}
		z.flow[from][to] += n
		left[from] -= n
		room[to] -= n
	}
	// A worker has relays of its own zone, even where others fill it.
	for _, from := range froms {
		for _, to := range tos {
			if c.relays.distinct[from].Tier(c.workers.distinct[to]) == SameDatacenter {
				send(from, to, 2*negligible)
			}
		}
	}
	// Relays that are at home in one zone only come first: they cannot go elsewhere.
	for tier := SameDatacenter; tier <= Global; tier++ {
		for _, from := range froms {
			if z.reach[from] != tier {
				continue
			}
			within := int64(0)
			for _, to := range tos {
				if z.atHome(from, to) {
					within += share[to] >> 20
				}
			}
			whole := left[from]
			for _, to := range tos {
				if z.atHome(from, to) {
					send(from, to, portion(whole, share[to]>>20, max(within, 1)))
				}
			}
			for _, to := range tos {
				if z.atHome(from, to) {
					send(from, to, wholeSupply)
				}
			}
		}
	}
	for tier := SameDatacenter; tier <= Global; tier++ {
		for _, from := range froms {
			for _, to := range tos {
				if left[from] > negligible && c.relays.distinct[from].Tier(c.workers.distinct[to]) <= tier {
					send(from, to, wholeSupply)
				}
			}
		}
	}
	return z
}

// negligible is the part of the traffic that is not worth connections to another zone.
const negligible = wholeSupply >> 30

func (z *zones) atHome(from, to int) bool {
	return z.relays.distinct[from].Tier(z.workers.distinct[to]) <= z.reach[from]
}

func (z *zones) findReach(perTier int) {
	z.reach = make([]Tier, len(z.relays.distinct))
	for p, place := range z.relays.distinct {
		var within [Global + 1]int
		for q, other := range z.workers.distinct {
			within[place.Tier(other)] += z.workers.count[q]
		}
		for have := within[0]; z.reach[p] < Global && have < perTier; have += within[z.reach[p]] {
			z.reach[p]++
		}
	}
}

// targets returns the traffic that each worker should get, in any unit: its part by weight of the
// traffic of its zone. Nil means the same for all.
func (z *zones) targets(weights []float64) []float64 {
	if len(z.workers.distinct) == 1 {
		return weights
	}
	inflow, weight := make([]float64, len(z.workers.distinct)), make([]float64, len(z.workers.distinct))
	for _, flows := range z.flow {
		for to, flow := range flows {
			inflow[to] += float64(flow)
		}
	}
	for i, to := range z.workers.of {
		weight[to] += loadOf(weights, int32(i))
	}
	out := make([]float64, len(z.workers.of))
	for i, to := range z.workers.of {
		out[i] = float64(loadOf(weights, int32(i))*inflow[to]) / weight[to]
	}
	return out
}

// namesInOrder returns the indexes of places in the order of their names.
func namesInOrder(distinct []Place) []int {
	out := make([]int, len(distinct))
	for i := range out {
		out[i] = i
	}
	slices.SortFunc(out, func(a, b int) int {
		return cmp.Or(strings.Compare(distinct[a].Region, distinct[b].Region), strings.Compare(distinct[a].Datacenter, distinct[b].Datacenter))
	})
	return out
}
