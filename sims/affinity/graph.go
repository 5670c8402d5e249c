package main

import "math/bits"

// graph is who is connected to whom, as a bit for each pair, and the load of each worker
// when relays carry equal traffic. Members that join a fleet do so one at a time and have
// higher numbers, so they share the last row or column.
type graph struct {
	rows, columns int
	bits          []uint64
	load          []float64
}

// newGraph has room for the members of a fleet and one that joins it.
func newGraph(f fleet) *graph {
	rows, columns := len(f.relays)+1, len(f.workers)+1
	return &graph{rows, columns, make([]uint64, rows*columns/64+1), make([]float64, columns)}
}

// connect adds a connection that carries a share of the relay's traffic.
func (g *graph) connect(relay, worker int, share float64) {
	relay, worker = min(relay, g.rows-1), min(worker, g.columns-1)
	at := relay*g.columns + worker
	g.bits[at/64] |= 1 << (at % 64)
	g.load[worker] += share
}

func (g *graph) connected(relay, worker int) bool {
	at := relay*g.columns + worker
	return g.bits[at/64]>>(at%64)&1 == 1
}

// moved counts the connections that only one of two graphs has.
func moved(a, b *graph) int {
	n := 0
	for i := range a.bits {
		n += bits.OnesCount64(a.bits[i] ^ b.bits[i])
	}
	return n
}
