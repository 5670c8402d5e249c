package affinity

import "math/bits"

// transport sends the supply of relays to cells over connections, such that the fullest cell
// gets as little as possible, in proportion to what it should get; then the next fullest, and so
// on. It is used where proportional fitting finds no factors, because the connections cannot
// give every cell its share: a busy relay overloads the workers that it reaches.
//
// The algorithm divides the network (Fujishige, 1980). All cells of a piece get the same part of
// their share if the flow can be arranged so. If it cannot, a smallest cut shows which relays
// supply more than the cells that they reach can take. These relays and cells are one piece, the
// rest is the other, no flow crosses, and each piece is divided in turn.
//
// Everything is computed in integers, so that all relays find the same flow.
type transport struct {
	cells  [][]int32 // of each relay, as in network
	supply []int64   // of each relay
	demand []int64   // of each cell: its share of the load, in any unit

	flow   [][]int64      // of each relay: what it sends to each of its cells
	left   []int64        // of each relay: what it has not sent yet
	load   []int64        // of each cell: what it receives
	limit  []int64        // of each cell: what it may receive
	relays [][]connection // of each cell

	relayPiece, cellPiece []int32 // the number of the piece of each relay and cell
	relayLevel, cellLevel []int32 // distance from a relay that has something left; 0 is out of reach
	relayNext, cellNext   []int32 // next connection to try
	queue                 []int32 // of levels, to reuse
}

// connection is a relay, and at which of the cells of the relay.
type connection struct{ relay, at int32 }

// wholeSupply is the sum of all supplies. Parts of it are exact to 15 digits.
const wholeSupply = 1 << 50

// newTransport begins with a flow whose rows sum to the supplies. begin is the flow of each relay
// in any unit, parallel to cells.
func newTransport(n network, begin [][]float64) *transport {
	t := &transport{
		cells: n.cells, supply: apportion(wholeSupply, n.supply, len(n.cells)), demand: apportion(wholeSupply, n.demand, len(n.demand)),
		flow: make([][]int64, len(n.cells)), left: make([]int64, len(n.cells)),
		load: make([]int64, len(n.demand)), limit: make([]int64, len(n.demand)), relays: make([][]connection, len(n.demand)),
		relayPiece: make([]int32, len(n.cells)), cellPiece: make([]int32, len(n.demand)),
		relayLevel: make([]int32, len(n.cells)), cellLevel: make([]int32, len(n.demand)),
		relayNext: make([]int32, len(n.cells)), cellNext: make([]int32, len(n.demand)),
	}
	degree, all := make([]int32, len(t.demand)), 0
	for _, cells := range n.cells {
		for _, c := range cells {
			degree[c]++
		}
		all += len(cells)
	}
	room := make([]connection, all)
	for c := range t.demand {
		t.demand[c] = max(t.demand[c], 1)
		t.relays[c], room = room[:0:degree[c]], room[degree[c]:]
	}
	for relay, cells := range n.cells {
		t.flow[relay] = apportion(t.supply[relay], begin[relay], len(cells))
		for at, c := range cells {
			t.load[c] += t.flow[relay][at]
			t.relays[c] = append(t.relays[c], connection{int32(relay), int32(at)})
		}
	}
	return t
}

// apportion divides a whole into n parts in proportion to weights, exactly; without weights, or if
// all are 0, into equal parts.
func apportion(whole int64, weights []float64, n int) []int64 {
	total, sum := 0.0, 0.0
	for _, weight := range weights {
		total += weight
	}
	weight := func(i int) float64 {
		if total == 0 {
			return 1 / float64(n)
		}
		return weights[i] / total
	}
	out, given := make([]int64, n), int64(0)
	for i := range out {
		sum += weight(i)
		upTo := min(whole, int64(float64(whole)*sum))
		if i == n-1 {
			upTo = whole
		}
		out[i] = upTo - given
		given = upTo
	}
	return out
}

// portion returns ⌊whole·a/b⌋ for 0 <= a <= b and b > 0.
func portion(whole, a, b int64) int64 {
	high, low := bits.Mul64(uint64(whole), uint64(a))
	quotient, _ := bits.Div64(high, low, uint64(b))
	return int64(quotient)
}

// solve arranges the flow.
func (t *transport) solve() {
	type piece struct{ relays, cells []int32 }
	all := piece{make([]int32, len(t.supply)), make([]int32, len(t.demand))}
	for i := range all.relays {
		all.relays[i] = int32(i)
	}
	for i := range all.cells {
		all.cells[i] = int32(i)
	}
	pieces, last := []piece{all}, int32(0)
	for len(pieces) > 0 {
		p := pieces[len(pieces)-1]
		pieces = pieces[:len(pieces)-1]
		supply := t.limits(p.relays, p.cells)
		t.clip(p.cells)
		if t.augment(p.relays, p.cells) <= supply>>30 { // the rest is rounding
			continue
		}
		last++
		over, rest := piece{make([]int32, 0, len(p.relays)), make([]int32, 0, len(p.cells))}, piece{p.relays[:0], p.cells[:0]} // rest overwrites p
		for _, relay := range p.relays {
			if t.relayLevel[relay] > 0 {
				t.relayPiece[relay] = last
				over.relays = append(over.relays, relay)
			} else {
				rest.relays = append(rest.relays, relay)
			}
		}
		for _, c := range p.cells {
			if t.cellLevel[c] > 0 {
				t.cellPiece[c] = last
				over.cells = append(over.cells, c)
			} else {
				rest.cells = append(rest.cells, c)
			}
		}
		pieces = append(pieces, over, rest)
	}
}

// limits sets the limits of the cells of a piece to equal parts of their shares, so that they sum
// to the supply of the piece, which it returns.
func (t *transport) limits(relays, cells []int32) int64 {
	var supply, demand int64
	for _, relay := range relays {
		supply += t.supply[relay]
	}
	for _, c := range cells {
		demand += t.demand[c]
	}
	upTo, given := int64(0), int64(0)
	for _, c := range cells {
		upTo += t.demand[c]
		t.limit[c] = portion(supply, upTo, demand) - given
		given += t.limit[c]
	}
	return supply
}

// clip takes back from each cell what exceeds its limit, from all its relays in the same
// proportion.
func (t *transport) clip(cells []int32) {
	for _, c := range cells {
		if t.load[c] <= t.limit[c] {
			continue
		}
		kept := int64(0)
		for _, r := range t.relays[c] {
			flow := &t.flow[r.relay][r.at]
			keep := portion(*flow, t.limit[c], t.load[c])
			t.left[r.relay] += *flow - keep
			*flow = keep
			kept += keep
		}
		t.load[c] = kept
	}
}

// augment sends what is left as far as the limits allow, along shortest paths on which relays
// take back what they sent elsewhere (Dinic, 1970). It returns what stays; relays and cells with
// a level are then those that can be reached from it.
func (t *transport) augment(relays, cells []int32) int64 {
	for {
		missing, room := t.levels(relays, cells)
		if missing == 0 || !room {
			return missing
		}
		for _, relay := range relays {
			t.relayNext[relay] = 0
		}
		for _, c := range cells {
			t.cellNext[c] = 0
		}
		for _, relay := range relays {
			for t.left[relay] > 0 {
				sent := t.send(relay, t.left[relay])
				if sent == 0 {
					break
				}
				t.left[relay] -= sent
			}
		}
	}
}

// levels numbers relays and cells by their distance from relays that have something left. It
// returns how much that is, and whether a cell in reach has room.
func (t *transport) levels(relays, cells []int32) (missing int64, room bool) {
	for _, c := range cells {
		t.cellLevel[c] = 0
	}
	queue := t.queue[:0]
	for _, relay := range relays {
		t.relayLevel[relay] = 0
		if t.left[relay] > 0 {
			missing += t.left[relay]
			t.relayLevel[relay] = 1
			queue = append(queue, relay)
		}
	}
	for at := 0; at < len(queue); at++ { // the loop body appends relays
		relay := queue[at]
		for _, c := range t.cells[relay] {
			if t.cellLevel[c] > 0 || t.cellPiece[c] != t.relayPiece[relay] {
				continue
			}
			t.cellLevel[c] = t.relayLevel[relay] + 1
			room = room || t.load[c] < t.limit[c]
			for _, r := range t.relays[c] {
				if t.relayLevel[r.relay] == 0 && t.flow[r.relay][r.at] > 0 {
					t.relayLevel[r.relay] = t.cellLevel[c] + 1
					queue = append(queue, r.relay)
				}
			}
		}
	}
	t.queue = queue
	return missing, room
}

// send sends at most amount from a relay towards cells with room, level by level. It returns how
// much it sent.
func (t *transport) send(relay int32, amount int64) int64 {
	for ; int(t.relayNext[relay]) < len(t.cells[relay]); t.relayNext[relay]++ {
		at := t.relayNext[relay]
		c := t.cells[relay][at]
		if t.cellLevel[c] != t.relayLevel[relay]+1 || t.cellPiece[c] != t.relayPiece[relay] {
			continue
		}
		if sent := t.receive(c, amount); sent > 0 {
			t.flow[relay][at] += sent
			return sent
		}
	}
	return 0
}

// receive takes at most amount into a cell, or passes it on to relays that send as much less to
// this cell.
func (t *transport) receive(c int32, amount int64) int64 {
	if room := t.limit[c] - t.load[c]; room > 0 {
		took := min(room, amount)
		t.load[c] += took
		return took
	}
	for ; int(t.cellNext[c]) < len(t.relays[c]); t.cellNext[c]++ {
		r := t.relays[c][t.cellNext[c]]
		flow := &t.flow[r.relay][r.at]
		if t.relayLevel[r.relay] != t.cellLevel[c]+1 || *flow == 0 {
			continue
		}
		if sent := t.send(r.relay, min(amount, *flow)); sent > 0 {
			*flow -= sent
			return sent
		}
	}
	return 0
}

// weights returns the flow of a relay as parts of 1, parallel to cells.
func (t *transport) weights(relay int) []float64 {
	sum, out := int64(0), make([]float64, len(t.flow[relay]))
	for _, flow := range t.flow[relay] {
		sum += flow
	}
	for at, flow := range t.flow[relay] {
		out[at] = float64(flow) / float64(sum)
	}
	return out
}
