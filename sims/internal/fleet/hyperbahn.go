package fleet

import (
	"math"
	"slices"

	"github.com/ringway/ringway/ring"
)

// hyperbahn is the affinity of Uber's Hyperbahn: relays and workers sorted by address, and
// every relay a run of workers with equal weights. Addresses are as good as random, so the
// order here is that of a hash.
func hyperbahn(rangeOf func(s Size, i int, relays, workers float64) (start, end int)) func(*Graph, Size, Fleet) error {
	return func(g *Graph, s Size, f Fleet) error {
		relays, workers := byAddress(f.Relays, RelayID), byAddress(f.Workers, WorkerID)
		for i, relay := range relays {
			start, end := rangeOf(s, i, float64(len(relays)), float64(len(workers)))
			end = min(end, start+len(workers))
			for pos := start; pos < end; pos++ {
				g.Connect(relay, workers[pos%len(workers)], 1/float64(end-start))
			}
		}
		return nil
	}
}

// describedRange is that of its description and simulation (docs/affinity.md and
// docs/sims/affinity.py of tchannel): the start rounded down, the end to the nearest.
func describedRange(s Size, i int, relays, workers float64) (start, end int) {
	ratio := workers / relays
	length := max(float64(s.PerRelay), float64(s.PerWorker)*ratio)
	return int(float64(i) * ratio), int(float64(i)*ratio + length + 0.5)
}

// productionRange is that of its code (partial_range.js): down and up.
func productionRange(s Size, i int, relays, workers float64) (start, end int) {
	ratio := workers / relays
	length := min(workers, max(float64(s.PerRelay), math.Ceil(float64(s.PerWorker)*ratio)))
	return int(float64(i) * ratio), int(math.Ceil(float64(i)*ratio + length))
}

func byAddress(members []int, name func(int) string) []int {
	out := ring.Order("address", ids(members, name))
	numbers := make([]int, len(out))
	for i, id := range out {
		numbers[i] = number(id)
	}
	return slices.Clip(numbers)
}
