package affinity

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/sims/internal/fleet"
	"github.com/ringway/ringway/sims/internal/scenario"
)

// spectrum varies workers, relays and minimums, one at a time.
func spectrum(r *scenario.Run, sub subject) error {
	name := r.Text("strategy")
	i := slices.IndexFunc(sub.strategies, func(st fleet.Strategy) bool { return st.Name == name })
	st := sub.strategies[i]
	for _, part := range []func(*scenario.Run, fleet.Strategy) error{scale, partition, minimums} {
		if err := part(r, st); err != nil {
			return err
		}
	}
	return nil
}

// measure connects and measures one fleet. Without workers the result is zero.
func measure(st fleet.Strategy, s fleet.Size) (fleet.Figures, error) {
	f := fleet.New(s.Relays*st.Spares, s.Workers)
	g := fleet.NewGraph(f)
	err := st.Connect(g, s, f)
	if errors.Is(err, affinity.ErrNoWorkers) {
		return fleet.Figures{}, nil
	}
	if err != nil {
		return fleet.Figures{}, fmt.Errorf("%v: %w", s, err)
	}
	return fleet.Measure(g, f), nil
}

var spectrumColumns = []scenario.Column{
	{Name: "relays per worker, fewest"}, {Name: "most"}, {Name: "workers per relay, fewest"}, {Name: "most"},
	{Name: "connections"}, {Name: "fewest possible"},
}

func cells(got fleet.Figures, s fleet.Size) []any {
	return []any{got.PerWorker.Min, got.PerWorker.Max, got.PerRelay.Min, got.PerRelay.Max, got.Connections, s.Minimum()}
}

// steps measures all sizes in parallel.
func steps(r *scenario.Run, st fleet.Strategy, sizes []fleet.Size) ([]fleet.Figures, error) {
	out := make([]fleet.Figures, len(sizes))
	return out, r.Parallel(len(sizes), func(i int) (err error) {
		out[i], err = measure(st, sizes[i])
		return err
	})
}

// scale adds workers one by one.
func scale(r *scenario.Run, st fleet.Strategy) error {
	var sizes []fleet.Size
	for w := range r.Int("workers") + 1 {
		sizes = append(sizes, fleet.Size{Relays: r.Int("relays"), Workers: w, PerWorker: r.Int("m"), PerRelay: r.Int("p")})
	}
	figures, err := steps(r, st, sizes)
	if err != nil {
		return err
	}
	t := r.Table(scenario.Table{
		Name: "scale", Title: fmt.Sprintf("workers come to %d relays, m = %d, p = %d, %s", r.Int("relays"), r.Int("m"), r.Int("p"), st.Name),
		Columns: append([]scenario.Column{{Name: "workers", Key: true}}, spectrumColumns...),
	})
	p := r.Plot(scenario.Plot{
		Name: "scale-connections", Title: fmt.Sprintf("Connections while workers come to %d relays", r.Int("relays")),
		X: scenario.Axis{Label: "workers", Unit: "workers"}, Y: scenario.Axis{Label: "connections of the fleet", Unit: "connections"},
	})
	full, have, least := p.Line("full mesh"), p.Line("held"), p.Dashed("fewest that keep both minimums")
	for i, s := range sizes {
		got := figures[i]
		t.Add(append([]any{s.Workers}, cells(got, s)...)...)
		x := float64(s.Workers)
		have.At(x, float64(got.Connections))
		least.At(x, float64(s.Minimum()))
		full.At(x, float64(s.Relays*s.Workers))
		if s.Workers > 0 {
			judge(r, s, st, got)
		}
	}
	last := sizes[len(sizes)-1]
	p.Conclusion = fmt.Sprintf("The fleet holds exactly the fewest connections that keep both minimums: %d with %d workers, %.0f %% of full mesh.",
		figures[len(sizes)-1].Connections, last.Workers, 100*float64(figures[len(sizes)-1].Connections)/float64(last.Relays*last.Workers))
	return nil
}

// partition removes relays one by one.
func partition(r *scenario.Run, st fleet.Strategy) error {
	from, to := r.Int("partition-from"), r.Int("partition-to")
	if to > from {
		return fmt.Errorf("partition-to=%d: not more than partition-from=%d", to, from)
	}
	var sizes []fleet.Size
	for n := from; n >= to; n-- {
		sizes = append(sizes, fleet.Size{Relays: n, Workers: r.Int("workers"), PerWorker: r.Int("m"), PerRelay: r.Int("p")})
	}
	figures, err := steps(r, st, sizes)
	if err != nil {
		return err
	}
	t := r.Table(scenario.Table{
		Name: "partition", Title: fmt.Sprintf("relays go, %d workers, m = %d, p = %d, %s", r.Int("workers"), r.Int("m"), r.Int("p"), st.Name),
		Columns: append([]scenario.Column{{Name: "relays", Key: true}}, spectrumColumns...),
	})
	p := r.Plot(scenario.Plot{
		Name: "partition-ranges", Title: fmt.Sprintf("Ranges while %d relays become %d", from, to),
		X: scenario.Axis{Label: "relays", Unit: "relays"}, Y: scenario.Axis{Label: "connections of one member", Unit: "connections"},
	})
	lowW, highW := p.Line("relays per worker, fewest"), p.Dashed("relays per worker, most")
	lowR, highR := p.Line("workers per relay, fewest"), p.Dashed("workers per relay, most")
	for i, s := range sizes {
		got, x := figures[i], float64(s.Relays)
		t.Add(append([]any{s.Relays}, cells(got, s)...)...)
		lowW.At(x, float64(got.PerWorker.Min))
		highW.At(x, float64(got.PerWorker.Max))
		lowR.At(x, float64(got.PerRelay.Min))
		highR.At(x, float64(got.PerRelay.Max))
		judge(r, s, st, got)
	}
	after := figures[len(figures)-1]
	ranges := fmt.Sprint(after.PerRelay.Min)
	if after.PerRelay.Max > after.PerRelay.Min {
		ranges += fmt.Sprintf(" to %d", after.PerRelay.Max)
	}
	p.Conclusion = fmt.Sprintf("The relays that are left widen their ranges to %s workers, and every worker keeps at least %d relays.", ranges, after.PerWorker.Min)
	return nil
}

// minimums varies both minimums, from the lowest allowed value up to ten.
func minimums(r *scenario.Run, st fleet.Strategy) error {
	var sizes []fleet.Size
	for m := affinity.LeastPeersPerWorker; m <= min(10, r.Int("relays")); m++ {
		for p := affinity.LeastPeersPerRelay; p <= 10; p++ {
			sizes = append(sizes, fleet.Size{Relays: r.Int("relays"), Workers: r.Int("workers"), PerWorker: m, PerRelay: p})
		}
	}
	figures, err := steps(r, st, sizes)
	if err != nil {
		return err
	}
	t := r.Table(scenario.Table{
		Name: "minimums", Title: fmt.Sprintf("both minimums, %d relays, %d workers, %s", r.Int("relays"), r.Int("workers"), st.Name),
		Columns: append([]scenario.Column{{Name: "m", Key: true}, {Name: "p", Key: true}}, spectrumColumns...),
	})
	for i, s := range sizes {
		t.Add(append([]any{s.PerWorker, s.PerRelay}, cells(figures[i], s)...)...)
		judge(r, s, st, figures[i])
	}
	return nil
}
