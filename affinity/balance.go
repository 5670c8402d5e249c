package affinity

import "fmt"

// balance finds the weights: every worker's load in proportion to its own weight over all
// groups that share relays, as nearly as the connections allow. Nil loads are equal.
func (p *Plan) balance(loads []float64) {
	p.fallBack()
	if len(p.groups) == 1 && loads == nil && p.groups[0].closed() {
		return
	}
	p.pull = make([]float64, len(p.workers))
	cellOf := make([]int32, len(p.workers))
	for _, part := range p.parts() {
		g := part.groups[0]
		switch {
		case len(part.groups) > 1 || len(g.bands) > 1 || !equal(loads, g.workers):
			p.scale(part, loads, cellOf)
		case !g.closed():
			for pos, pull := range g.bands[0].pull { // found by fallBack
				p.pull[g.workers[pos]] = pull
			}
		}
	}
}

// closed reports whether the weights of a group that is a part by itself, with workers of
// equal weight, have a closed form.
func (g *group) closed() bool { return len(g.bands) == 1 && g.bands[0].links == nil }

// fallBack gives up rendezvous if the relays that are at home in a group cannot give equal
// load to its workers. Weights of workers do not matter here: a change of them must not
// move a connection.
func (p *Plan) fallBack() {
	for i := range p.groups {
		g := &p.groups[i]
		for b := range g.bands {
			home := &g.bands[b]
			if !home.home || home.links == nil {
				continue
			}
			demand := make([]float64, len(g.workers))
			for w := range demand {
				demand[w] = float64(len(home.relays)) / float64(len(demand))
			}
			var ok bool
			if home.pull, ok = (network{home.links, demand}).pulls(); !ok {
				p.strategy = Projection
				p.fallback = fmt.Sprintf("rendezvous: no weights give %d workers equal load from the relays they hash to, %d in all; the plan is a projection instead",
					len(g.workers), len(home.relays))
				p.unlink()
				return
			}
		}
	}
}

func (p *Plan) unlink() {
	for _, g := range p.groups {
		for b := range g.bands {
			g.bands[b].links = nil
		}
	}
}

func loadOf(loads []float64, worker int32) float64 {
	if loads == nil {
		return 1
	}
	return loads[worker]
}

func equal(loads []float64, at []int32) bool {
	if loads == nil {
		return true
	}
	for _, i := range at {
		if loads[i] != loads[at[0]] {
			return false
		}
	}
	return true
}

// part is groups that share relays, and these relays.
type part struct {
	groups []*group
	relays []int
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
		for at := 0; at < len(next.groups); at++ { // grows on the way
			for _, b := range next.groups[at].bands {
				for _, relay := range b.relays {
					if taken[relay] {
						continue
					}
					taken[relay] = true
					next.relays = append(next.relays, int(relay))
					for _, s := range p.seats[relay] {
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

// scale finds the pulls of one part; cellOf is scratch.
func (p *Plan) scale(part part, loads []float64, cellOf []int32) {
	net := network{cells: make([][]int32, len(part.relays))}
	total := 0.0
	for _, g := range part.groups {
		begins := g.cells()
		for pos, w := range g.workers {
			if begins[pos] {
				net.demand = append(net.demand, 0)
			}
			cell := len(net.demand) - 1
			cellOf[w] = int32(cell)
			net.demand[cell] += loadOf(loads, w)
			total += loadOf(loads, w)
		}
	}
	for i, relay := range part.relays {
		last := int32(-1)
		for w := range p.connections(relay) {
			if cell := cellOf[w]; cell != last {
				net.cells[i] = append(net.cells[i], cell)
				last = cell
			}
		}
	}
	inRelays := float64(len(part.relays)) / total
	for c := range net.demand {
		net.demand[c] = float64(net.demand[c] * inRelays)
	}
	pulls, _ := net.pulls() // where it cannot be exact, near is what there is
	for _, g := range part.groups {
		for _, w := range g.workers {
			cell := cellOf[w]
			p.pull[w] = pulls[cell] * loadOf(loads, w) / net.demand[cell]
		}
	}
}

// cells marks the positions at which a cell begins: a run of workers that have the same
// relays.
func (g *group) cells() []bool {
	begins := make([]bool, len(g.workers))
	begins[0] = true
	for _, b := range g.bands {
		if b.links != nil {
			for pos := range begins {
				begins[pos] = true
			}
			return begins
		}
		for local := range b.relays {
			r := b.shape.project(local)
			begins[r.Start()] = true
			begins[r.End()] = true
		}
	}
	return begins
}
