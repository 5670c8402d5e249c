package affinity

import "math"

// network is who connects to whom, with the workers that have the same relays put together
// in cells. Relays carry equal traffic.
type network struct {
	cells  [][]int32 // of each relay
	demand []float64 // of each cell: the traffic it should get, in relays
}

const (
	// balanced is the error at which loads count as equal.
	balanced = 1e-6
	// maxRounds bounds the time of a network that cannot be balanced. Fleets of up to a
	// hundred relays take fewer than two hundred; on larger rings what is left by then is
	// below 1 %.
	maxRounds = 400
	// between is how many rounds go by before the loads are looked at.
	between = 4
	// extreme bounds the factors of networks that cannot be balanced, which run off to
	// zero or infinity.
	extreme = 1 << 60
)

// pulls finds a factor for every cell such that relays that split their traffic over their
// cells in proportion to the factors give every cell its demand. It reports whether it
// found one; if not, loads are as near as it came.
//
// This is iterative proportional fitting (Deming and Stephan, 1940; Sinkhorn, 1967): give
// rows and columns in turn the factor that makes their sums right, overrelaxed (Thibault
// and others, 2017), without which a ring of R relays takes some R² rounds.
//
// The result is the same on every processor: IEEE 754 defines sums, quotients and square
// roots to the last bit, and the conversions keep products from being fused with the sums
// they go into, which the Go specification would otherwise allow.
func (n network) pulls() ([]float64, bool) {
	push := make([]float64, len(n.cells))
	pull := make([]float64, len(n.demand))
	sums := make([]float64, len(n.demand))
	copy(pull, n.demand)
	for i, cells := range n.cells {
		push[i] = 1 / float64(len(cells))
	}
	for round := 1; ; round++ {
		for i, cells := range n.cells {
			push[i] = adjust(push[i], 1, sumOf(pull, cells))
		}
		clear(sums)
		for i, cells := range n.cells {
			for _, c := range cells {
				sums[c] += push[i]
			}
		}
		for c, demand := range n.demand {
			pull[c] = adjust(pull[c], demand, sums[c])
		}
		if round%between == 0 {
			ok := n.worst(pull, sums) <= balanced
			if ok || round >= maxRounds {
				return pull, ok
			}
		}
	}
}

// adjust multiplies factor by the 1.75th power of what would make factor·sum the target.
func adjust(factor, target, sum float64) float64 {
	ratio := target / float64(factor*sum)
	root := math.Sqrt(ratio)
	return min(max(float64(factor*ratio*root*math.Sqrt(root)), 1./extreme), extreme)
}

// worst returns the largest relative error of a cell's load; sums is scratch.
func (n network) worst(pull, sums []float64) float64 {
	clear(sums)
	for _, cells := range n.cells {
		share := 1 / sumOf(pull, cells)
		for _, c := range cells {
			sums[c] += share
		}
	}
	worst := 0.0
	for c, demand := range n.demand {
		worst = max(worst, math.Abs(float64(pull[c]*sums[c])/demand-1))
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
