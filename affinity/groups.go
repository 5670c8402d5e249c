package affinity

import (
	"fmt"
	"math"
)

// group is one ring of workers and the relays that share it.
//
// The workers of one zone form a group. A worker is in one group; a relay can be in several.
type group struct {
	workers []int32 // positions in Plan.workers, ascending
	sets    []relaySet
	scaled  bool // the weights have no closed form
}

// relaySet is a set of relays that share the workers of a group evenly.
type relaySet struct {
	relays []int32 // affine indexes, ascending
	shape  Shape

	part setPart

	// links are, for each relay, the positions in the group that it is connected to,
	// ascending, with the rendezvous strategy. Nil with projection, and where every relay
	// is connected to every worker.
	links   [][]int32
	factors []float64 // of each worker of the group, for equal load over links
}

// setPart is why the relays of a set are connected to the workers of a group.
type setPart byte

const (
	// homeSet are relays of the zone of the workers, or of a zone near it that has too few
	// workers of its own.
	homeSet setPart = iota
	// guestSet are relays of zones that have more traffic than their own workers should take.
	guestSet
	// reserveRegion and reserveGlobal complete the relays that a worker needs, nearest first.
	// Their connections are warm standbys: zones sends no traffic that way.
	reserveRegion
	reserveGlobal
	noSet
)

// standby reports whether the relays of the set send nothing to the workers.
func (s setPart) standby() bool { return s >= reserveRegion }

func (s setPart) String() string {
	return [...]string{"home", "guest", "reserve", "reserve"}[s]
}

// places are the distinct places of members and, for each member, the index of its place.
type places struct {
	distinct []Place
	of       []int32
	count    []int // members per distinct place
}

func placesOf(n int, at func(int) *Place) places {
	p := places{of: make([]int32, n)}
	known := map[Place]int32{}
	for i := 0; i < n; {
		// In most fleets neighbouring members have the same place: skip the map.
		place, end := at(i), i+1
		for end < n && place.same(at(end)) {
			end++
		}
		number, ok := known[*place]
		if !ok {
			number = int32(len(p.distinct))
			known[*place] = number
			p.distinct = append(p.distinct, *place)
			p.count = append(p.count, 0)
		}
		p.count[number] += end - i
		for ; i < end; i++ {
			p.of[i] = number
		}
	}
	return p
}

// groups makes a group of the workers of each zone.
//
// They are shared by the relays that are at home there and by guests, which are the relays of
// zones that send traffic (see newZones). If these are fewer than m, relays of the region are
// added, then any relays. So every worker has min(m, R) relays, and every relay has workers.
func (z *zones) groups() []group {
	out := make([]group, len(z.workers.distinct))
	for to := range out {
		out[to].workers = make([]int32, 0, z.workers.count[to])
	}
	for pos, to := range z.workers.of {
		out[to].workers = append(out[to].workers, int32(pos))
	}
	for to := range out {
		out[to].sets = z.relaySets(z.linksOf(to), len(out[to].workers))
	}
	return out
}

// link is how the workers of a zone are connected to a place of relays.
type link struct {
	set setPart
	Minimums
}

// linksOf returns how the workers of a zone are connected to each place of relays. Places that
// send traffic are a set each, so that every worker has relays of each, or evenly spaced workers
// have.
func (z *zones) linksOf(to int) []link {
	out := make([]link, len(z.relays.distinct))
	var senders []sender
	var reserve [noSet]int
	for from, place := range z.relays.distinct {
		tier, flow, set := place.Tier(z.workers.distinct[to]), z.flow[from][to], reserveGlobal
		switch {
		case flow > 0 && tier <= z.reach[from]:
			set = homeSet
		case flow > 0:
			set = guestSet
		case tier == SameRegion:
			set = reserveRegion
		}
		out[from].set = set
		reserve[set] += z.relays.count[from]
		if flow > 0 {
			senders = append(senders, sender{from: from, flow: flow, relays: z.relays.count[from], local: tier == SameDatacenter})
		}
	}
	have := divideRelays(senders, z.minimums.PeersPerWorker)
	for _, s := range senders {
		l := Minimums{PeersPerWorker: s.perWorker, PeersPerRelay: z.minimums.PeersPerRelay}
		if s.perWorker == 0 {
			// Connections in proportion to the traffic are m times as many as could carry it.
			l.PeersPerRelay = max(l.PeersPerRelay, int(math.Ceil(float64(s.quota*float64(z.workers.count[to])))/float64(s.relays))+1)
		}
		out[s.from].Minimums = l
	}
	for set := reserveRegion; set < noSet; set++ {
		missing := max(0, z.minimums.PeersPerWorker-have)
		for from := range out {
			if out[from].set == set {
				out[from].PeersPerWorker = missing
				if missing == 0 { // nearer relays suffice
					out[from].set = noSet
				}
			}
		}
		have += reserve[set]
	}
	return out
}

// sender is a place of relays that sends traffic to a zone of workers.
type sender struct {
	from      int   // the place
	flow      int64 // what it sends
	relays    int
	local     bool    // the place is in the zone
	quota     float64 // its part of the m relays of a worker
	perWorker int     // how many that makes, 0 for less than one
}

// divideRelays divides the m relays of a worker among places in proportion to their flow by
// largest remainder, at least one if the place is local. It returns the sum, which is less than m
// if the places have fewer relays.
func divideRelays(senders []sender, m int) int {
	total, sum := 0.0, 0
	for _, s := range senders {
		total += float64(s.flow)
	}
	for i := range senders {
		s := &senders[i]
		s.quota = float64(float64(m)*float64(s.flow)) / total
		s.perWorker = min(s.relays, int(s.quota))
		if s.local {
			s.perWorker = max(s.perWorker, 1)
		}
		sum += s.perWorker
	}
	for sum < m {
		best := -1
		for i, s := range senders {
			if s.perWorker < s.relays && (best < 0 || s.quota-float64(s.perWorker) > senders[best].quota-float64(senders[best].perWorker)) {
				best = i
			}
		}
		if best < 0 {
			break
		}
		senders[best].perWorker++
		sum++
	}
	return sum
}

// relaySets makes the sets of a group of n workers.
func (z *zones) relaySets(links []link, n int) []relaySet {
	var out []relaySet
	add := func(l link, in func(place int) bool) {
		set := relaySet{part: l.set}
		for i, place := range z.relays.of {
			if in(int(place)) {
				set.relays = append(set.relays, int32(i))
			}
		}
		set.shape = Shape{Relays: len(set.relays), Workers: n, Minimums: l.Minimums}
		out = append(out, set)
	}
	for part := homeSet; part < noSet; part++ {
		done := false
		for from, l := range links {
			switch {
			case l.set != part:
			case !part.standby():
				add(l, func(place int) bool { return place == from })
			case !done:
				add(l, func(place int) bool { return links[place].set == part })
				done = true
			}
		}
	}
	return out
}

// Place is where a member runs. An empty field means unknown and matches nothing, not even
// another empty field.
type Place struct {
	Datacenter string
	Region     string
}

// same reports whether two places are equal. Most fleets name neither field: it calls nothing then.
func (p *Place) same(other *Place) bool {
	return len(p.Datacenter) == len(other.Datacenter) && len(p.Region) == len(other.Region) &&
		(p.Datacenter == "" || p.Datacenter == other.Datacenter) && (p.Region == "" || p.Region == other.Region)
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
