package affinity_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/ringway/ringway/affinity"
)

// The sweep is every fleet of up to 64 relays and 300 workers with every combination of
// minimums up to five: 288,000 shapes.
const (
	sweepRelays  = 64
	sweepWorkers = 300
)

// sweep calls check for every stride-th number of workers (1 is all), in parallel by number
// of relays. check returns the fault of the shape, or "".
func sweep(t *testing.T, stride int, newCheck func() func(affinity.Shape) string) {
	for relays := 1; relays <= sweepRelays; relays++ {
		t.Run(fmt.Sprintf("R=%d", relays), func(t *testing.T) {
			t.Parallel()
			check := newCheck()
			for workers := 1 + relays%stride; workers <= sweepWorkers; workers += stride {
				for m := 3; m <= 5; m++ {
					for p := 1; p <= 5; p++ {
						shape := affinity.Shape{Relays: relays, Workers: workers,
							Minimums: affinity.Minimums{PeersPerWorker: m, PeersPerRelay: p}}
						if wrong := check(shape); wrong != "" {
							t.Fatalf("W=%d m=%d p=%d: %s", workers, m, p, wrong)
						}
					}
				}
			}
		})
	}
}

// expected is the theorem of the projection: what the counts of a shape must be.
type expected struct {
	scaled      int // length of a range in units of 1/R of a worker
	connections int
	low, high   int // workers per relay
	least, most int // relays per worker
	neighbours  bool
}

func expect(s affinity.Shape) expected {
	scaled := min(s.Relays*s.Workers, max(s.PeersPerWorker*s.Workers, s.PeersPerRelay*s.Relays))
	return expected{
		scaled:      scaled,
		connections: scaled, // R ranges of scaled/R workers each
		low:         scaled / s.Relays,
		high:        (scaled + s.Relays - 1) / s.Relays,
		least:       scaled / s.Workers,
		most:        (scaled + s.Workers - 1) / s.Workers,
		neighbours:  scaled == s.PeersPerWorker*s.Workers && s.PeersPerWorker < s.Relays,
	}
}

func TestEveryWorkerHasExactlyMRelaysAndNoConnectionIsSpare(t *testing.T) {
	sweep(t, sweepStride, func() func(affinity.Shape) string {
		ranges := make([]affinity.Range, sweepRelays)
		steps := make([]int, 2*sweepWorkers+1)
		return func(s affinity.Shape) string {
			want := expect(s)
			clear(steps)
			total := 0
			for i := range s.Relays {
				r, err := s.Range(i)
				if err != nil {
					return err.Error()
				}
				if r.Len() < want.low || r.Len() > want.high || r.Len() < min(s.PeersPerRelay, s.Workers) {
					return fmt.Sprintf("relay %d has %d workers, want %d or %d", i, r.Len(), want.low, want.high)
				}
				if r.Size() != s.Workers || r.Start() < 0 || r.Start() >= s.Workers || r.End() != (r.Start()+r.Len())%s.Workers {
					return fmt.Sprintf("relay %d: %v does not fit the ring", i, r)
				}
				total += r.Len()
				ranges[i] = r
				steps[r.Start()]++ // on a ring unrolled to two turns
				steps[r.Start()+r.Len()]--
			}
			if total != want.connections {
				return fmt.Sprintf("%d connections, want %d", total, want.connections)
			}
			for i := 1; i < 2*s.Workers; i++ {
				steps[i] += steps[i-1]
			}
			// m ≤ R and m·W ≥ p·R: exactly m. Else floor or ceil.
			for w := range s.Workers {
				relays := steps[w] + steps[w+s.Workers]
				if relays < want.least || relays > want.most || relays < min(s.PeersPerWorker, s.Relays) {
					return fmt.Sprintf("worker %d has %d relays, want %d to %d", w, relays, want.least, want.most)
				}
				if want.neighbours && relays != s.PeersPerWorker {
					return fmt.Sprintf("worker %d has %d relays, want exactly %d", w, relays, s.PeersPerWorker)
				}
			}
			if want.neighbours {
				for i := range s.Relays {
					if end, start := ranges[i].End(), ranges[(i+s.PeersPerWorker)%s.Relays].Start(); end != start {
						return fmt.Sprintf("relay %d ends at %d, where relay %d after it starts at %d", i, end, s.PeersPerWorker, start)
					}
				}
			}
			return ""
		}
	})
}

// The dumb reference: think of worker w as the unit [w, w+1) of a circle of W and of relay
// i as the arc of length len from i·W/R; the relay connects to the workers whose middle
// lies on its arc, the far end included. Rounding both ends half up gives the same.
func TestRangesHoldTheWorkersWhoseMiddleLiesOnTheArc(t *testing.T) {
	sweep(t, sweepStride*sweepStride, func() func(affinity.Shape) string {
		return func(s affinity.Shape) string {
			scaled := expect(s).scaled
			for i := range s.Relays {
				r, err := s.Range(i)
				if err != nil {
					return err.Error()
				}
				from := 2 * i * s.Workers // all in units of 1/(2R) of a worker
				to := from + 2*scaled
				for w := range s.Workers {
					middle := (2*w + 1) * s.Relays
					again := middle + 2*s.Workers*s.Relays // one turn on
					want := from < middle && middle <= to || from < again && again <= to
					if r.Contains(w) != want {
						return fmt.Sprintf("relay %d, worker %d: connected is %v, want %v (%v)", i, w, !want, want, r)
					}
				}
			}
			return ""
		}
	})
}

// cannotBalance is the exception in the documentation of AppendWeights.
func cannotBalance(s affinity.Shape) bool {
	return s.PeersPerRelay == 1 && s.Workers > 1 && s.PeersPerWorker < s.Relays &&
		s.Relays > (s.PeersPerWorker-1)*s.Workers && s.Relays%s.Workers != 0
}

func TestWeightsSumToOneAndLoadsAreEqual(t *testing.T) {
	sweep(t, sweepStride, func() func(affinity.Shape) string {
		var weights []float64
		loads := make([]float64, sweepWorkers)
		return func(s affinity.Shape) string {
			clear(loads)
			for i := range s.Relays {
				r, err := s.Range(i)
				if err != nil {
					return err.Error()
				}
				if weights, err = s.AppendWeights(weights[:0], i); err != nil {
					return err.Error()
				}
				if len(weights) != r.Len() {
					return fmt.Sprintf("relay %d has %d weights for %v", i, len(weights), r)
				}
				sum, w := 0.0, r.Start()
				for _, weight := range weights {
					if weight < 0 {
						return fmt.Sprintf("relay %d gives worker %d the weight %v", i, w, weight)
					}
					sum += weight
					loads[w] += weight
					if w++; w == s.Workers {
						w = 0
					}
				}
				if math.Abs(sum-1) > 1e-9 {
					return fmt.Sprintf("the weights of relay %d sum to %v", i, sum)
				}
			}
			mean, margin := float64(s.Relays)/float64(s.Workers), 1e-9
			if cannotBalance(s) {
				margin = 1
			}
			for w, load := range loads[:s.Workers] {
				if math.Abs(load-mean) > margin {
					return fmt.Sprintf("worker %d carries %v, want %v", w, load, mean)
				}
			}
			return ""
		}
	})
}

func TestCoverageCountsEveryConnection(t *testing.T) {
	sweep(t, sweepStride, func() func(affinity.Shape) string {
		perWorker := make([]int, sweepWorkers)
		return func(s affinity.Shape) string {
			if s.Workers%11 != s.Relays%11 { // counting one by one is slow: a diagonal will do
				return ""
			}
			clear(perWorker)
			for i := range s.Relays {
				r, err := s.Range(i)
				if err != nil {
					return err.Error()
				}
				for w := range r.All() {
					perWorker[w]++
				}
			}
			c, err := s.Coverage()
			if err != nil {
				return err.Error()
			}
			want := expect(s)
			if len(c.PerWorker) != s.Workers || c.Min != want.least || c.Max != want.most ||
				c.MinPerRelay != want.low || c.MaxPerRelay != want.high || c.Connections != want.connections {
				return fmt.Sprintf("%+v, want %+v", c, want)
			}
			for w, n := range c.PerWorker {
				if n != perWorker[w] {
					return fmt.Sprintf("worker %d has %d relays, counted %d", w, n, perWorker[w])
				}
			}
			return ""
		}
	})
}
