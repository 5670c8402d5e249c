package affinity

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// Any connections, any traffic, any shares: every set of relays shows that the fullest cell cannot
// be less full, and the next fullest neither.
func TestTransportLoadsTheFullestCellsAsLittleAsPossible(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := network{demand: make([]float64, rapid.IntRange(1, 12).Draw(t, "cells"))}
		for c := range n.demand {
			n.demand[c] = float64(rapid.IntRange(1, 100).Draw(t, "share"))
		}
		begin := make([][]float64, rapid.IntRange(1, 8).Draw(t, "relays"))
		for i := range begin {
			n.supply = append(n.supply, float64(rapid.IntRange(1, 16).Draw(t, "traffic")))
			n.cells = append(n.cells, rapid.SliceOfNDistinct(rapid.Int32Range(0, int32(len(n.demand)-1)), 1, -1, rapid.ID).Draw(t, "connections"))
			begin[i] = make([]float64, len(n.cells[i]))
			for k := range begin[i] {
				begin[i][k] = float64(rapid.IntRange(0, 3).Draw(t, "begin"))
			}
		}
		transport := newTransport(n, begin)
		transport.solve()
		supply, demand := 0.0, 0.0
		load := make([]float64, len(n.demand))
		for _, s := range n.supply {
			supply += s
		}
		for _, d := range n.demand {
			demand += d
		}
		for i, cells := range n.cells {
			sum := 0.0
			for at, weight := range transport.weights(i) {
				if !(weight >= 0) {
					t.Fatalf("relay %d has the weights %v", i, transport.weights(i))
				}
				load[cells[at]] += weight * n.supply[i] / supply
				sum += weight
			}
			if math.Abs(sum-1) > 1e-9 {
				t.Fatalf("the weights of relay %d sum to %v", i, sum)
			}
		}
		// The cells that are at least as full as a level are filled only by relays that reach
		// no other cell. So nothing can be moved away from them, and this for each level.
		fullness := func(c int32) float64 { return load[c] / (n.demand[c] / demand) }
		for i, cells := range n.cells {
			weights := transport.weights(i)
			for a, from := range cells {
				for _, to := range cells {
					if weights[a] > 1e-6 && fullness(from) > fullness(to)*(1+1e-6)+1e-6 {
						t.Fatalf("relay %d sends %v to cell %d, which is %.7f full, though it reaches cell %d, which is %.7f full", i, weights[a], from, fullness(from), to, fullness(to))
					}
				}
			}
		}
	})
}
