package affinity

import (
	"fmt"
	"math"

	"github.com/ringway/ringway/sims/internal/fleet"
	"github.com/ringway/ringway/sims/internal/scenario"
)

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
