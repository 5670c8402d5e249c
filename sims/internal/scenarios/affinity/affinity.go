// Package affinity checks that every worker has enough relays, that every relay has enough
// workers, and that no connection is unnecessary.
//
// The scenario covers the range of the original simulation of the projection, Uber's
// Hyperbahn (docs/sims of tchannel): from 0 to 100 workers with 50 relays, from 100 down to 50
// relays, and both minimums. The original never varied the minimums because a loop overwrote
// one of them. Then the scenario counts every fleet of up to 64 relays and 300 workers.
//
//	affinity.go  every shape of a fleet, and plans next to the strategies of other systems
//	spectrum.go  plans, one fleet after another
package affinity

import (
	"fmt"
	"math"
	"time"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/sims/internal/fleet"
	"github.com/ringway/ringway/sims/internal/scenario"
)

// The promises, by name.
const (
	covered   = "workers with fewer than min(m, R) relays"
	supplied  = "relays with fewer than min(p, W) workers"
	fewest    = "connections more or less than the fewest that keep both minimums"
	evenOver  = "relays of a worker beyond ⌈connections ÷ W⌉"
	evenRange = "workers of a relay outside ⌊connections ÷ R⌋ to ⌈connections ÷ R⌉"
	balanced  = "load of the busiest worker ÷ mean"
	exact     = "largest difference of a load from the mean, in the sweep"
	floor     = "smallest range of rendezvous ÷ max(m·W, p·R)/R"
)

// subject is the code under test; tests replace it with broken code.
type subject struct {
	strategies []fleet.Strategy
	rangeOf    func(s affinity.Shape, index int) (start, length int, err error)
	weights    func(dst []float64, s affinity.Shape, index int) ([]float64, error)
}

// New returns the scenario.
func New() scenario.Scenario {
	return with(subject{
		strategies: fleet.Strategies(),
		rangeOf: func(s affinity.Shape, index int) (int, int, error) {
			r, err := s.Range(index)
			return r.Start(), r.Len(), err
		},
		weights: func(dst []float64, s affinity.Shape, index int) ([]float64, error) {
			return s.AppendWeights(dst, index)
		},
	})
}

func with(sub subject) scenario.Scenario {
	return scenario.Scenario{
		Name: "affinity",
		Asks: "Does every worker have its relays, every relay its workers, and no member a connection too many?",
		Settings: []scenario.Setting{
			{Name: "fleets", Help: "fleets to compare strategies at, relays x workers x m", Default: fleet.Sizes, Quick: fleet.Sizes[:4]},
			{Name: "strategy", Help: "the strategy of the spectrum", Default: fleet.ByRank, OneOf: []string{fleet.ByRank, fleet.BySlot, fleet.Rendezvous}},
			{Name: "relays", Help: "relays while workers come", Unit: "relays", Default: 50, Min: 1, Max: 1000},
			{Name: "workers", Help: "workers come one by one up to here", Unit: "workers", Default: 100, Min: 1, Max: 5000},
			{Name: "partition-from", Help: "relays before the partition", Unit: "relays", Default: 100, Min: 1, Max: 1000},
			{Name: "partition-to", Help: "relays that are left", Unit: "relays", Default: 50, Min: 1, Max: 1000},
			{Name: "m", Help: "relays per worker, at least", Unit: "relays", Default: affinity.DefaultMinimums.PeersPerWorker, Min: affinity.LeastPeersPerWorker, Max: 100},
			{Name: "p", Help: "workers per relay, at least", Unit: "workers", Default: affinity.DefaultMinimums.PeersPerRelay, Min: affinity.LeastPeersPerRelay, Max: 100},
			{Name: "sweep-relays", Help: "largest number of relays of the sweep", Unit: "relays", Default: 64, Min: 1, Max: 200},
			{Name: "sweep-workers", Help: "largest number of workers of the sweep", Unit: "workers", Default: 300, Min: 1, Max: 2000},
			{Name: "stride", Help: "step between the numbers of workers in the sweep", Default: 1, Quick: 7, Min: 1, Max: 1000},
		},
		Promises: []scenario.Promise{
			{Name: covered, Relation: scenario.AtMost, Bound: 0, Why: "a worker below m is lost to a restart together with a failure"},
			{Name: supplied, Relation: scenario.AtMost, Bound: 0, Why: "a relay needs a choice of workers"},
			{Name: fewest, Relation: scenario.AtMost, Bound: 0, Unit: "connections", Why: "projection only: max(m·W, p·R), and R·W at most; rendezvous adds some where ranges are small"},
			{Name: evenOver, Relation: scenario.AtMost, Bound: 0, Unit: "relays", Why: "projection only: no relay is fully connected unless the minimums require it"},
			{Name: evenRange, Relation: scenario.AtMost, Bound: 0, Unit: "workers", Why: "projection only"},
			{Name: balanced, Relation: scenario.AtMost, Bound: 1.0005, Why: "weights even out what ranges cannot"},
			{Name: exact, Relation: scenario.AtMost, Bound: 1e-9, Unit: "relays' traffic", Why: "the weights of the projection are exact, except for rounding"},
			{Name: floor, Relation: scenario.AtLeast, Bound: 0.6, Why: "affinity gives no relay fewer, so that weights can make up for it"},
		},
		Takes: 12 * time.Second, TakesQuick: 3 * time.Second,
		Run: func(r *scenario.Run) error {
			for _, part := range []func(*scenario.Run, subject) error{compare, spectrum, sweep} {
				if err := part(r, sub); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// compare compares Ringway's strategies with those of other systems, without changes of the
// fleet.
func compare(r *scenario.Run, sub subject) error {
	sizes, err := fleet.ParseSizes(r.Texts("fleets"))
	if err != nil {
		return err
	}
	figures := make([]fleet.Figures, len(sizes)*len(sub.strategies))
	if err := r.Parallel(len(figures), func(i int) error {
		s, st := sizes[i/len(sub.strategies)], sub.strategies[i%len(sub.strategies)]
		f := fleet.New(s.Relays*st.Spares, s.Workers)
		g := fleet.NewGraph(f)
		if err := st.Connect(g, s, f); err != nil {
			return fmt.Errorf("%v, %s: %w", s, st.Name, err)
		}
		figures[i] = fleet.Measure(g, f)
		return nil
	}); err != nil {
		return err
	}
	t := r.Table(scenario.Table{
		Name: "at-rest", Title: "connections at rest, compared with other designs", Section: "balance", Group: 3,
		Columns: []scenario.Column{
			{Name: "R", Key: true}, {Name: "W", Key: true}, {Name: "m", Key: true}, {Name: "strategy", Key: true},
			{Name: "relays per worker, fewest"}, {Name: "most"}, {Name: "workers per relay, fewest"}, {Name: "most"},
			{Name: "load, max ÷ mean", Digits: 3}, {Name: "connections ÷ fewest", Digits: 3},
		},
	})
	for i, got := range figures {
		s, st := sizes[i/len(sub.strategies)], sub.strategies[i%len(sub.strategies)]
		t.Add(s.Relays, s.Workers, s.PerWorker, st.Name, got.PerWorker.Min, got.PerWorker.Max, got.PerRelay.Min, got.PerRelay.Max,
			got.Peak, float64(got.Connections)/float64(s.Minimum()))
		if st.Ours {
			judge(r, s, st, got)
		}
	}
	drawLoads(r, sub, sizes, figures)
	return nil
}

// judge checks the figures of one of Ringway's strategies against the promises.
func judge(r *scenario.Run, s fleet.Size, st fleet.Strategy, got fleet.Figures) {
	where := fmt.Sprintf("%v, p = %d, %s", s, s.PerRelay, st.Name)
	r.Check(covered, float64(max(0, min(s.PerWorker, s.Relays)-got.PerWorker.Min)), where)
	r.Check(supplied, float64(max(0, min(s.PerRelay, s.Workers)-got.PerRelay.Min)), where)
	r.Check(balanced, got.Peak, where)
	if !st.Exact {
		r.Check(floor, float64(got.PerRelay.Min)*float64(s.Relays)/float64(s.Minimum()), where)
		return
	}
	r.Check(fewest, math.Abs(float64(got.Connections-s.Minimum())), where)
	each := s.Minimum()
	r.Check(evenOver, float64(got.PerWorker.Max-(each+s.Workers-1)/s.Workers), where)
	r.Check(evenRange, float64(max(got.PerRelay.Max-(each+s.Relays-1)/s.Relays, each/s.Relays-got.PerRelay.Min)), where)
}

// drawLoads draws the first fleet whose workers are not a multiple of its relays, where
// strategies differ most.
func drawLoads(r *scenario.Run, sub subject, sizes []fleet.Size, figures []fleet.Figures) {
	at := 0
	for i, s := range sizes {
		if s.Workers%s.Relays != 0 {
			at = i
			break
		}
	}
	s := sizes[at]
	p := r.Plot(scenario.Plot{
		Name: "load-by-strategy", Title: fmt.Sprintf("Load of the busiest worker (%v)", s),
		X: scenario.Axis{Label: "strategy"}, Y: scenario.Axis{Label: "load of the busiest worker ÷ mean", Unit: "1"},
	})
	var loads []float64
	worst, worstName := 0.0, ""
	for i, st := range sub.strategies {
		got := figures[at*len(sub.strategies)+i]
		p.Categories = append(p.Categories, st.Name)
		loads = append(loads, got.Peak)
		if got.Peak > worst {
			worst, worstName = got.Peak, st.Name
		}
	}
	p.Bars("busiest worker", loads)
	p.Conclusion = fmt.Sprintf("With our strategies the busiest worker carries the mean load; with %s it carries %.2f times as much.", worstName, worst)
}

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
