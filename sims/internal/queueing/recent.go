package queueing

import "slices"

// recentLatencies remembers, for each load that requests met on arrival, how long the last
// few took: what a worker of Prequal answers probes from.
type recentLatencies struct {
	samples [QueueBound + Slots][8]float32
	n       [QueueBound + Slots]uint32
}

func (r *recentLatencies) add(load int, latency float32) {
	r.samples[load][r.n[load]%8] = latency
	r.n[load]++
}

// near is the median at the load nearest to this one that has samples, 0 if none has.
func (r *recentLatencies) near(load int) float64 {
	load = min(load, len(r.n)-1)
	for distance := range len(r.n) {
		for _, at := range [2]int{load - distance, load + distance} {
			if at < 0 || at >= len(r.n) || r.n[at] == 0 {
				continue
			}
			sorted := r.samples[at]
			known := sorted[:min(r.n[at], 8)]
			slices.Sort(known)
			return float64(known[len(known)/2])
		}
	}
	return 0
}
