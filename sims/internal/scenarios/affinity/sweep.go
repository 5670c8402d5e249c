package affinity

import (
	"fmt"
	"math"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/sims/internal/scenario"
)

// The minimums of the sweep.
const sweepM, sweepP = 5, 5

// tally holds the results of one number of relays: the worst value of each kind, with its
// shape.
type tally struct {
	shapes, connections, possible, unbalanced int

	covered, supplied, fewest, evenOver, evenRange, exact worst
}

// worst keeps the largest value and its shape.
type worst struct {
	value float64
	where affinity.Shape
	seen  bool
}

func (w *worst) see(value float64, s affinity.Shape) {
	if !w.seen || value > w.value {
		w.value, w.where, w.seen = value, s, true
	}
}

// sweep counts every shape up to the settings sweep-relays and sweep-workers.
func sweep(r *scenario.Run, sub subject) error {
	relays, workers, stride := r.Int("sweep-relays"), r.Int("sweep-workers"), r.Int("stride")
	tallies := make([]tally, relays)
	if err := r.Parallel(relays, func(i int) error {
		return tallies[i].count(sub, i+1, workers, stride)
	}); err != nil {
		return err
	}
	which := "every fleet"
	if stride > 1 {
		which = fmt.Sprintf("one in %d of the fleets", stride)
	}
	t := r.Table(scenario.Table{
		Name: "sweep", Title: fmt.Sprintf("%s of up to %d relays and %d workers, m = 3 to %d, p = 1 to %d", which, relays, workers, sweepM, sweepP),
		Note: "where p = 1 and relays outnumber workers, a relay of one connection has nothing to weigh; these shapes are left out of the last column",
		Columns: []scenario.Column{
			{Name: "relays, from", Key: true}, {Name: "to", Key: true}, {Name: "shapes"}, {Name: "connections"}, {Name: "fewest possible"},
			{Name: "workers short of relays, at most"}, {Name: "relays short of workers, at most"}, {Name: "shapes without equal loads"}, {Name: "load off the mean, at most", Unit: "10⁻¹⁵", Digits: 1},
		},
	})
	for from := 0; from < relays; from += 8 {
		var sum tally
		to := min(relays, from+8)
		for _, one := range tallies[from:to] {
			sum.shapes += one.shapes
			sum.connections += one.connections
			sum.possible += one.possible
			sum.unbalanced += one.unbalanced
			sum.covered.see(one.covered.value, one.covered.where)
			sum.supplied.see(one.supplied.value, one.supplied.where)
			sum.exact.see(one.exact.value, one.exact.where)
		}
		t.Add(from+1, to, sum.shapes, sum.connections, sum.possible, int(sum.covered.value), int(sum.supplied.value), sum.unbalanced, 1e15*sum.exact.value)
	}
	for i := range tallies {
		for promise, w := range tallies[i].verdicts() {
			if w.seen {
				s := w.where
				r.Check(promise, w.value, fmt.Sprintf("R = %d, W = %d, m = %d, p = %d", s.Relays, s.Workers, s.PeersPerWorker, s.PeersPerRelay))
			}
		}
	}
	return nil
}

// verdicts yields the worst value of each promise, in a fixed order.
func (t *tally) verdicts() func(yield func(string, worst) bool) {
	return func(yield func(string, worst) bool) {
		_ = yield(covered, t.covered) && yield(supplied, t.supplied) && yield(fewest, t.fewest) &&
			yield(evenOver, t.evenOver) && yield(evenRange, t.evenRange) && yield(exact, t.exact)
	}
}

// count counts all shapes with a given number of relays.
func (t *tally) count(sub subject, relays, workers, stride int) error {
	perWorker, loads := make([]int, workers+1), make([]float64, workers)
	var weights []float64
	for w := 1 + relays%stride; w <= workers; w += stride {
		for m := affinity.LeastPeersPerWorker; m <= sweepM; m++ {
			for p := affinity.LeastPeersPerRelay; p <= sweepP; p++ {
				s := affinity.Shape{Relays: relays, Workers: w, Minimums: affinity.Minimums{PeersPerWorker: m, PeersPerRelay: p}}
				clear(perWorker)
				clear(loads)
				possible := min(relays*w, max(m*w, p*relays))
				connections, fewestOfRelay, mostOfRelay := 0, math.MaxInt, 0
				for i := range relays {
					start, length, err := sub.rangeOf(s, i)
					if err != nil {
						return err
					}
					connections += length
					fewestOfRelay, mostOfRelay = min(fewestOfRelay, length), max(mostOfRelay, length)
					if weights, err = sub.weights(weights[:0], s, i); err != nil {
						return err
					}
					mark(perWorker[:w+1], start, length)
					at := start
					for _, weight := range weights {
						loads[at] += weight
						if at++; at == w {
							at = 0
						}
					}
				}
				fewestOfWorker, mostOfWorker := math.MaxInt, 0
				off, mean := 0.0, float64(relays)/float64(w)
				for i, n := 0, 0; i < w; i++ {
					n += perWorker[i]
					fewestOfWorker, mostOfWorker = min(fewestOfWorker, n), max(mostOfWorker, n)
					off = max(off, math.Abs(loads[i]-mean))
				}
				t.shapes++
				t.connections += connections
				t.possible += possible
				t.covered.see(float64(max(0, min(m, relays)-fewestOfWorker)), s)
				t.supplied.see(float64(max(0, min(p, w)-fewestOfRelay)), s)
				t.fewest.see(math.Abs(float64(connections-possible)), s)
				t.evenOver.see(float64(mostOfWorker-(possible+w-1)/w), s)
				t.evenRange.see(float64(max(mostOfRelay-(possible+relays-1)/relays, possible/relays-fewestOfRelay)), s)
				if cannotBalance(s) {
					t.unbalanced++
				} else {
					t.exact.see(off, s)
				}
			}
		}
	}
	return nil
}

// mark records the start and end of a range as +1 and −1; the last element is beyond the ring.
func mark(steps []int, start, length int) {
	size := len(steps) - 1
	if length >= size {
		steps[0]++
		return
	}
	steps[start]++
	if end := start + length; end <= size {
		steps[end]--
	} else {
		steps[0]++
		steps[end-size]--
	}
}

// cannotBalance reports whether no weights give equal loads: the exception that the
// documentation of affinity.Shape.AppendWeights describes.
func cannotBalance(s affinity.Shape) bool {
	return s.PeersPerRelay == 1 && s.Workers > 1 && s.PeersPerWorker < s.Relays &&
		s.Relays > (s.PeersPerWorker-1)*s.Workers && s.Relays%s.Workers != 0
}
