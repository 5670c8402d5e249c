package fleet

import "math"

// Figures are what one graph shows at rest.
type Figures struct {
	PerWorker, PerRelay Span
	Peak                float64 // load of the busiest worker in parts of the mean
	Connections         int
}

// Span is a minimum and a maximum.
type Span struct{ Min, Max int }

func (s *Span) add(n int) { s.Min, s.Max = min(s.Min, n), max(s.Max, n) }

// Measure counts over the relays that serve and all workers of a fleet. Both are at least
// one.
func Measure(g *Graph, f Fleet) Figures {
	out := Figures{PerWorker: Span{Min: math.MaxInt}, PerRelay: Span{Min: math.MaxInt}}
	ofWorker := make(map[int]int, len(f.Workers))
	serving := 0
	for _, relay := range f.Relays {
		n := 0
		for _, worker := range f.Workers {
			if g.Connected(relay, worker) {
				ofWorker[worker]++
				n++
			}
		}
		if n > 0 { // spares have none
			serving++
			out.PerRelay.add(n)
			out.Connections += n
		}
	}
	for _, worker := range f.Workers {
		out.PerWorker.add(ofWorker[worker])
		out.Peak = max(out.Peak, g.load[worker]*float64(len(f.Workers))/float64(serving))
	}
	return out
}
