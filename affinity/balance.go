package affinity

import (
	"fmt"
	"math"
)

// network holds the connections between relays and cells; a cell combines the workers that
// have the same relays. Traffic is in units of the mean of the relays.
type network struct {
	cells  [][]int32 // of each relay
	supply []float64 // of each relay: its traffic; nil if all carry the same
	demand []float64 // of each cell: the traffic that it should get
}

func (n network) supplyOf(relay int) float64 {
	if n.supply == nil {
		return 1
	}
	return n.supply[relay]
}

const (
	// tolerance is the relative error below which loads count as equal.
	tolerance = 1e-6
	// maxRounds bounds the time spent on the question whether a network can be balanced at all.
	maxRounds = 400
	// splitRounds bounds the time spent on factors. Rendezvous takes fewer than 64 rounds if it
	// can be balanced. Rings of many relays take hundreds: there, transport is faster, and the
	// flows are spread as widely. See hopeless.
	splitRounds = 64
	// checkEvery is the number of rounds between two checks of the loads.
	checkEvery = 4
	// maxFactor bounds the factors of networks that cannot be balanced: they would diverge to
	// zero or infinity.
	maxFactor = 1 << 60
)

// factors finds a factor for every cell such that relays that split their traffic over their
// cells in proportion to the factors give every cell its demand. It reports whether it
// found such factors within a number of rounds; if not, it returns the factors of the last one.
//
// The algorithm is iterative proportional fitting (Deming and Stephan, 1940; Sinkhorn,
// 1967): rows (relays) and columns (cells) in turn are multiplied by the factor that
// corrects their sums. The factor is overrelaxed (Thibault and others, 2017), because
// otherwise a ring of R relays takes about R² rounds.
//
// The result is the same on every processor: IEEE 754 defines sums, quotients and square
// roots to the last bit, and the explicit conversions prevent products from being fused
// with additions, which the Go specification would otherwise allow.
func (n network) factors(rounds int) ([]float64, bool) {
	relayFactors := make([]float64, len(n.cells))
	factors := make([]float64, len(n.demand))
	sums := make([]float64, len(n.demand))
	copy(factors, n.demand)
	for i, cells := range n.cells {
		relayFactors[i] = n.supplyOf(i) / float64(len(cells))
	}
	var before [2]float64 // the worst errors of the last two checks
	for round := 1; ; round++ {
		for i, cells := range n.cells {
			relayFactors[i] = adjust(relayFactors[i], n.supplyOf(i), sumOf(factors, cells))
		}
		clear(sums)
		for i, cells := range n.cells {
			for _, c := range cells {
				sums[c] += relayFactors[i]
			}
		}
		for c, demand := range n.demand {
			if demand > 0 {
				factors[c] = adjust(factors[c], demand, sums[c])
			}
		}
		if round%checkEvery == 0 {
			worst := n.worst(factors, sums)
			if ok := worst <= tolerance; ok || round >= rounds || rounds == splitRounds && round >= 4*checkEvery && hopeless(worst, before, rounds-round) {
				return factors, ok
			}
			before = [2]float64{worst, before[0]}
		}
	}
}

// hopeless reports whether an error that decreases as it did over the last two checks will not be
// small enough after the rounds that are left. Rings of more than about 50 relays are hopeless after
// 16 rounds, which halves the time that their plans take; no rendezvous of 20 to 300 relays was,
// whatever their traffic.
func hopeless(worst float64, before [2]float64, left int) bool {
	const margin = 10 // the error does not decrease evenly
	rate := worst / before[1]
	for ; left > 0 && worst > tolerance; left -= 2 * checkEvery {
		worst *= rate
		if rate >= 1 {
			return true
		}
	}
	return worst > margin*tolerance
}

// adjust multiplies factor by r^1.75, where r is the ratio of target to factor·sum. An
// exponent of 1 would be plain proportional fitting; 1.75 is the overrelaxation.
func adjust(factor, target, sum float64) float64 {
	ratio := target / float64(factor*sum)
	root := math.Sqrt(ratio)
	return min(max(float64(factor*ratio*root*math.Sqrt(root)), 1./maxFactor), maxFactor)
}

// worst returns the largest relative error of a cell's load; sums is scratch.
func (n network) worst(factors, sums []float64) float64 {
	clear(sums)
	for i, cells := range n.cells {
		share := n.supplyOf(i) / sumOf(factors, cells)
		for _, c := range cells {
			sums[c] += share
		}
	}
	worst := 0.0
	for c, demand := range n.demand {
		if demand > 0 {
			worst = max(worst, math.Abs(float64(factors[c]*sums[c])/demand-1))
		}
	}
	return worst
}

func sumOf(values []float64, at []int32) float64 {
	sum := 0.0
	for _, i := range at {
		sum += values[i]
	}
	return sum
}

// balance finds the weights: every worker's load is proportional to its target, as nearly as
// the connections allow. Nil targets are equal.
func (p *Plan) balance(targets []float64) {
	p.fallBack()
	if len(p.groups) == 1 && targets == nil && p.supply == nil && p.groups[0].closed() {
		return
	}
	p.targets = targets
	p.cellOf = make([]int32, len(p.workers))
	for _, part := range p.parts() {
		g := part.groups[0]
		found := g.closed() || g.sets[0].factors != nil // fallBack asks only about relays at home
		switch {
		case !found || len(part.groups) > 1 || len(g.sets) > 1 || !equal(targets, g.workers) || !equal(p.supply, part.relays):
			p.scale(part)
		case !g.closed():
			g.scaled = true
			for pos, w := range g.workers { // every worker is a cell, and they have equal targets
				p.cellOf[w] = int32(len(p.factors) + pos)
			}
			p.factors = append(p.factors, g.sets[0].factors...) // found by fallBack
		}
	}
	if p.factors == nil {
		p.targets, p.cellOf = nil, nil
	}
}

// closed reports whether the weights of the group have a closed form, provided that the
// group shares no relay with another and its workers have equal weight.
func (g *group) closed() bool { return len(g.sets) == 1 && g.sets[0].links == nil }

// fallBack replaces rendezvous with projection if the home relays of a group cannot give
// equal load to its workers. The check ignores the weights of workers, because a change of
// weight must not move a connection.
func (p *Plan) fallBack() {
	for i := range p.groups {
		g := &p.groups[i]
		for b := range g.sets {
			home := &g.sets[b]
			if home.part != homeSet || home.links == nil || len(g.sets) > 1 {
				continue // guests make up for what home relays cannot do
			}
			demand := make([]float64, len(g.workers))
			for w := range demand {
				demand[w] = float64(len(home.relays)) / float64(len(demand))
			}
			var ok bool
			if home.factors, ok = (network{cells: home.links, demand: demand}).factors(maxRounds); !ok {
				p.strategy = Projection
				p.fallback = fmt.Sprintf("rendezvous: no weights give the %d workers equal load from the %d relays; the plan uses projection instead",
					len(g.workers), len(home.relays))
				p.unlink()
				return
			}
		}
	}
}

func (p *Plan) unlink() {
	for _, g := range p.groups {
		for b := range g.sets {
			g.sets[b].links = nil
		}
	}
}

func loadOf(loads []float64, worker int32) float64 {
	if loads == nil {
		return 1
	}
	return loads[worker]
}

// equal reports whether the values of some members are the same; nil values all are.
func equal(values []float64, at []int32) bool {
	if values == nil {
		return true
	}
	for _, i := range at {
		if values[i] != values[at[0]] {
			return false
		}
	}
	return true
}

// part is a set of groups that share relays, with these relays.
type part struct {
	groups []*group
	relays []int32
}

// parts splits the plan into groups that share no relay with the rest.
func (p *Plan) parts() []part {
	var out []part
	done := map[*group]bool{}
	taken := make([]bool, len(p.affine))
	for i := range p.groups {
		if done[&p.groups[i]] {
			continue
		}
		next := part{groups: []*group{&p.groups[i]}}
		done[&p.groups[i]] = true
		for at := 0; at < len(next.groups); at++ { // the loop body appends groups
			for _, b := range next.groups[at].sets {
				for _, relay := range b.relays {
					if taken[relay] {
						continue
					}
					taken[relay] = true
					next.relays = append(next.relays, relay)
					for _, s := range p.shares[relay] {
						if !done[s.group] {
							done[s.group] = true
							next.groups = append(next.groups, s.group)
						}
					}
				}
			}
		}
		out = append(out, next)
	}
	return out
}

// scale finds the weights of one part, and sets the cells of its workers.
func (p *Plan) scale(part part) {
	first := int32(len(p.factors)) // cell of the part; the network counts from 0
	net := network{cells: make([][]int32, len(part.relays))}
	supply, total := float64(len(part.relays)), 0.0
	if p.supply != nil {
		supply = 0
		for _, relay := range part.relays {
			net.supply = append(net.supply, p.supply[relay])
			supply += p.supply[relay]
		}
	}
	for _, g := range part.groups {
		begins := g.cells()
		cell := len(net.demand) - 1
		for pos, w := range g.workers {
			if begins[pos] {
				net.demand = append(net.demand, 0)
				cell++
			}
			p.cellOf[w] = first + int32(cell)
			load := loadOf(p.targets, w)
			net.demand[cell] += load
			total += load
		}
	}
	connected := make([]int32, 0, 4*len(part.relays))
	for i, relay := range part.relays {
		begin := len(connected)
		for _, s := range p.shares[relay] {
			if !s.set.part.standby() {
				connected = p.appendCells(connected, s)
			}
		}
		net.cells[i] = connected[begin:len(connected):len(connected)]
		for at := range net.cells[i] {
			net.cells[i][at] -= first
		}
	}
	inRelays := supply / total
	for c := range net.demand {
		net.demand[c] = float64(net.demand[c] * inRelays)
	}
	factors, ok := net.factors(splitRounds)
	if !ok {
		p.divide(part, net, factors)
	}
	for _, g := range part.groups {
		g.scaled = true
	}
	for c, demand := range net.demand {
		factor := 0.0 // of a zone without traffic
		if demand > 0 {
			factor = inRelays / demand // makes targets parts of the cell
			if ok {
				factor *= factors[c]
			}
		}
		p.factors = append(p.factors, factor)
	}
}

// appendCells appends the cells of a share, in the order of its workers.
func (p *Plan) appendCells(dst []int32, s relayShare) []int32 {
	workers := s.group.workers
	if s.set.links != nil { // every worker is a cell
		for _, pos := range s.set.links[s.local] {
			dst = append(dst, p.cellOf[workers[pos]])
		}
		return dst
	}
	r := s.set.shape.project(s.local)
	if r.len == 0 {
		return dst
	}
	// The cells of a group have consecutive numbers, and one begins at each end of the range.
	least, most := p.cellOf[workers[0]], p.cellOf[workers[len(workers)-1]]
	cell, end := p.cellOf[workers[r.start]], p.cellOf[workers[r.end()]]
	for {
		dst = append(dst, cell)
		if cell++; cell > most {
			cell = least
		}
		if cell == end {
			return dst
		}
	}
}

// divide finds the flows of one part that load the fullest worker least. They begin with those of
// factors, which are nearly right and use all connections.
func (p *Plan) divide(part part, net network, factors []float64) {
	begin := make([][]float64, len(net.cells))
	for i, cells := range net.cells {
		begin[i] = make([]float64, len(cells))
		for at, c := range cells {
			begin[i][at] = factors[c]
		}
	}
	t := newTransport(net, begin)
	t.solve()
	if p.flows == nil {
		p.flows = make([][]float64, len(p.affine))
	}
	for i, relay := range part.relays {
		p.flows[relay] = t.weights(i)
	}
}

// cells marks the positions at which a cell begins. A cell is a run of workers that have
// the same relays.
func (g *group) cells() []bool {
	begins := make([]bool, len(g.workers))
	begins[0] = true
	for _, b := range g.sets {
		if b.links != nil {
			for pos := range begins {
				begins[pos] = true
			}
			return begins
		}
		for local := range b.relays {
			r := b.shape.project(local)
			begins[r.Start()] = true
			begins[r.end()] = true
		}
	}
	return begins
}
