package affinity

import "fmt"

// group is one ring of workers and the relays that share it.
//
// Workers of one datacenter form a group; datacenters that are served by the same relays
// share a group. A worker is in one group; a relay can be in several.
type group struct {
	workers []int32 // positions in Plan.workers, ascending
	sets    []relaySet
}

// relaySet is a set of relays that share the workers of a group evenly.
type relaySet struct {
	relays []int32 // affine indexes, ascending
	shape  Shape

	// home is true if the relays of the set are at home in the group (see groups). Other
	// sets are a reserve: the group has fewer home relays than a worker needs.
	home bool

	// links are, for each relay, the positions in the group that it is connected to,
	// ascending, with the rendezvous strategy. Nil with projection, and where every relay
	// is connected to every worker.
	links   [][]int32
	factors []float64 // of each worker of the group, for equal load over links
}

// locality is the input from which groups are formed.
type locality struct {
	relays, workers places
	minimums        Minimums
	perTier         int // workers that a relay must reach before it ignores farther tiers
}

// places are the distinct places of members and, for each member, the index of its place.
type places struct {
	distinct []Place
	of       []int32
	count    []int // members per distinct place
}

func placesOf(n int, at func(int) Place) places {
	p := places{of: make([]int32, n)}
	known := map[Place]int32{}
	for i := range p.of {
		place := at(i)
		// In most fleets neighbouring members have the same place: skip the map.
		if i > 0 && place == p.distinct[p.of[i-1]] {
			p.of[i] = p.of[i-1]
		} else if which, ok := known[place]; ok {
			p.of[i] = which
		} else {
			p.of[i] = int32(len(p.distinct))
			known[place] = p.of[i]
			p.distinct = append(p.distinct, place)
			p.count = append(p.count, 0)
		}
		p.count[p.of[i]]++
	}
	return p
}

// groups assigns workers and relays to groups, in order of each group's first worker. It
// also returns the group of every place of workers.
//
//   - A relay is at home in its own datacenter. If that has fewer than perTier workers, the
//     relay is at home in its region as well, and if the region has too few, everywhere.
//   - The workers of a datacenter are shared by the relays that are at home there. If these
//     are fewer than m, relays of the region are added, then any relays.
//
// So every worker has min(m, R) relays, every relay has workers, and a datacenter that has
// enough of both has no connection to another.
func (l locality) groups() ([]group, []int32) {
	reach := l.reach()

	// Places of workers with the same relays in the same sets share a group: the key of a
	// group holds the set of every relay place.
	var keys []string
	index := map[string]int32{}
	groupOf := make([]int32, len(l.workers.distinct))
	for q, place := range l.workers.distinct {
		key := l.setsAt(place, reach)
		g, ok := index[key]
		if !ok {
			g = int32(len(keys))
			index[key] = g
			keys = append(keys, key)
		}
		groupOf[q] = g
	}
	size := make([]int, len(keys))
	for q, g := range groupOf {
		size[g] += l.workers.count[q]
	}
	out := make([]group, len(keys))
	for g := range out {
		out[g].workers = make([]int32, 0, size[g])
	}
	for pos, q := range l.workers.of {
		g := &out[groupOf[q]]
		g.workers = append(g.workers, int32(pos))
	}
	for g, key := range keys {
		out[g].sets = l.relaySets(key, len(out[g].workers))
	}
	return out, groupOf
}

// reach returns, for each place of relays, the farthest tier in which they are at home.
func (l locality) reach() []Tier {
	out := make([]Tier, len(l.relays.distinct))
	for p, place := range l.relays.distinct {
		var within [Global + 1]int
		for q, other := range l.workers.distinct {
			within[place.Tier(other)] += l.workers.count[q]
		}
		for have := within[0]; out[p] < Global && have < l.perTier; have += within[out[p]] {
			out[p]++
		}
	}
	return out
}

// Values of a set in the key of a group, nearest first.
const (
	setHome = iota
	setRegion
	setGlobal
	setNone
)

// setsAt returns the set of every relay place for the workers of one place.
func (l locality) setsAt(place Place, reach []Tier) string {
	key := make([]byte, len(l.relays.distinct))
	var relays [setNone]int
	for p, other := range l.relays.distinct {
		if tier := place.Tier(other); tier > reach[p] {
			key[p] = byte(tier) // never SameDatacenter: every reach includes it
		}
		relays[key[p]] += l.relays.count[p]
	}
	have := 0
	for b, n := range relays {
		if have >= l.minimums.PeersPerWorker { // nearer sets suffice
			for p := range key {
				if key[p] == byte(b) {
					key[p] = setNone
				}
			}
		}
		have += n
	}
	return string(key)
}

// relaySets makes the sets of a group of n workers from its key.
func (l locality) relaySets(key string, n int) []relaySet {
	var out []relaySet
	missing := l.minimums.PeersPerWorker
	for b := byte(setHome); b < setNone; b++ {
		var relays []int32
		for i, place := range l.relays.of {
			if key[place] == b {
				relays = append(relays, int32(i))
			}
		}
		if len(relays) == 0 {
			continue
		}
		next := relaySet{relays: relays, home: b == setHome}
		next.shape = Shape{Relays: len(relays), Workers: n, Minimums: Minimums{PeersPerWorker: missing}}
		if next.home {
			next.shape.PeersPerRelay = l.minimums.PeersPerRelay
		}
		out = append(out, next)
		missing -= min(missing, len(relays))
	}
	return out
}

// Place is where a member runs. An empty field means unknown and matches nothing, not even
// another empty field.
type Place struct {
	Datacenter string
	Region     string
}

// Tier returns how near two places are.
func (p Place) Tier(other Place) Tier {
	switch {
	case p.Datacenter != "" && p.Datacenter == other.Datacenter:
		return SameDatacenter
	case p.Region != "" && p.Region == other.Region:
		return SameRegion
	}
	return Global
}

// String names the place by its narrowest known field.
func (p Place) String() string {
	switch {
	case p.Datacenter != "":
		return "datacenter " + p.Datacenter
	case p.Region != "":
		return "region " + p.Region
	}
	return "an unknown place"
}

// Tier is how near two members are, nearest first.
type Tier int

const (
	SameDatacenter Tier = iota
	SameRegion
	Global
)

// String returns same_dc, same_region or global.
func (t Tier) String() string {
	switch t {
	case SameDatacenter:
		return "same_dc"
	case SameRegion:
		return "same_region"
	case Global:
		return "global"
	}
	return fmt.Sprintf("tier(%d)", int(t))
}
