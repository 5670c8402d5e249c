package affinity

// group is one ring of workers and the relays that share it.
//
// Workers of one datacenter form a group; datacenters that the same relays serve share
// one. A worker is in one group, a relay in as many as it has reason to serve.
type group struct {
	workers []int32 // positions in Plan.workers, ascending
	bands   []band
}

// band is a set of relays that share the workers of a group evenly.
type band struct {
	relays []int32 // affine indexes, ascending
	shape  Shape

	// home relays have the workers of the group among their own. The others are a reserve:
	// they are there because the group has fewer home relays than a worker needs.
	home bool

	// links are the positions in the group that each relay is connected to, ascending,
	// with the rendezvous strategy. Nil with projection, and where it would be everything.
	links [][]int32
	pull  []float64 // of each worker of the group, for equal load over links
}

// locality is what groups are formed by.
type locality struct {
	relays, workers places
	minimums        Minimums
	perTier         int // endpoints that make a tier enough for a relay
}

// places are the distinct places of members and, for each member, which one it has.
type places struct {
	distinct []Place
	of       []int32
	count    []int // members by distinct place
}

func placesOf(n int, at func(int) Place) places {
	p := places{of: make([]int32, n)}
	known := map[Place]int32{}
	for i := range p.of {
		place := at(i)
		// Most fleets have one place or long runs of it.
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

// groups puts workers and relays together, in order of each group's first worker. It also
// returns the group of every place of workers.
//
//   - A relay's home is its own datacenter. Where that has fewer than perTier workers it
//     is the region as well, and where that is still too few, everything.
//   - The workers of a datacenter are shared by the relays that are at home there. Where
//     these are fewer than m, relays of the region fill up the number, then any.
//
// So every worker has min(m, R) relays, no relay is without workers, and a datacenter that
// has enough of both sees no connection to another.
func (l locality) groups() ([]group, []int32) {
	reach := l.reach()

	// Places with the same relays in the same bands share a group: the key is the band of
	// every relay place.
	var keys []string
	index := map[string]int32{}
	groupOf := make([]int32, len(l.workers.distinct))
	for q, place := range l.workers.distinct {
		key := l.bandsAt(place, reach)
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
		out[g].bands = l.bands(key, len(out[g].workers))
	}
	return out, groupOf
}

// reach returns, for each place of relays, the furthest tier at which they are at home.
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

// The bands in the key of a group, nearest first.
const (
	bandHome = iota
	bandRegion
	bandGlobal
	bandNone
)

// bandsAt returns the band of every relay place for the workers of one place.
func (l locality) bandsAt(place Place, reach []Tier) string {
	key := make([]byte, len(l.relays.distinct))
	var relays [bandNone]int
	for p, other := range l.relays.distinct {
		if tier := place.Tier(other); tier > reach[p] {
			key[p] = byte(tier) // never SameDatacenter, which every reach includes
		}
		relays[key[p]] += l.relays.count[p]
	}
	have := 0
	for b, n := range relays {
		if have >= l.minimums.PeersPerWorker { // nearer bands suffice
			for p := range key {
				if key[p] == byte(b) {
					key[p] = bandNone
				}
			}
		}
		have += n
	}
	return string(key)
}

// bands makes the bands of a group of n workers from its key.
func (l locality) bands(key string, n int) []band {
	var out []band
	missing := l.minimums.PeersPerWorker
	for b := byte(bandHome); b < bandNone; b++ {
		var relays []int32
		for i, place := range l.relays.of {
			if key[place] == b {
				relays = append(relays, int32(i))
			}
		}
		if len(relays) == 0 {
			continue
		}
		next := band{relays: relays, home: b == bandHome}
		next.shape = Shape{Relays: len(relays), Workers: n, Minimums: Minimums{PeersPerWorker: missing}}
		if next.home {
			next.shape.PeersPerRelay = l.minimums.PeersPerRelay
		}
		out = append(out, next)
		missing -= min(missing, len(relays))
	}
	return out
}
