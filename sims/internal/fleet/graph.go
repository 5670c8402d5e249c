package fleet

import "math/bits"

// Graph is who is connected to whom, as a bit for each pair, and the load of each worker
// when relays carry equal traffic. Members that join a fleet do so one at a time and have
// higher numbers, so they share the last row or column.
type Graph struct {
	rows, columns int
	bits          []uint64
	load          []float64
}

// NewGraph has room for the members of a fleet and one that joins it.
func NewGraph(f Fleet) *Graph {
	rows, columns := len(f.Relays)+1, len(f.Workers)+1
	return &Graph{rows, columns, make([]uint64, rows*columns/64+1), make([]float64, columns)}
}

// Connect adds a connection that carries a share of the relay's traffic.
func (g *Graph) Connect(relay, worker int, share float64) {
	relay, worker = min(relay, g.rows-1), min(worker, g.columns-1)
	at := relay*g.columns + worker
	g.bits[at/64] |= 1 << (at % 64)
	g.load[worker] += share
}

// Connected reports whether two are connected.
func (g *Graph) Connected(relay, worker int) bool {
	at := relay*g.columns + worker
	return g.bits[at/64]>>(at%64)&1 == 1
}

// Moved counts the connections that only one of two graphs has.
func Moved(a, b *Graph) int {
	n := 0
	for i := range a.bits {
		n += bits.OnesCount64(a.bits[i] ^ b.bits[i])
	}
	return n
}

// Handed is the traffic that all relays hand out together, in that of one relay.
func (g *Graph) Handed() (sum float64) {
	for _, load := range g.load {
		sum += load
	}
	return sum
}
