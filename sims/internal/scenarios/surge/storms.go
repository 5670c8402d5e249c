package surge

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/ringway/ringway/sims/internal/scenario"
)

// outcome is what one surge has led to.
type outcome struct {
	herd    float64   // slots of the busiest worker between two reports ÷ mean, on average
	fullest float64   // slots of the fullest ÷ mean at each report, on average
	first   float64   // slots of the busiest above the mean before the second report
	above   []float64 // slots of the fullest above the mean, report by report
	full    float64   // share of the slots that the first worker got
}

func (s setup) run(r *scenario.Run, reports int) (outcome, error) {
	var out outcome
	// Equal chance for all, so that they are compared on the same terms.
	f, err := newFleet(s, func(stream string) *rand.Rand { return r.Rand(stream) })
	if err != nil {
		return out, err
	}
	judged := float64(reports - reports/3)
	sent := 0
	for i := range reports {
		if err := r.Context().Err(); err != nil {
			return out, err
		}
		if err := f.interval(); err != nil {
			return out, err
		}
		above := float64(slices.Max(f.taken)) - mean(f.taken)
		out.above = append(out.above, above)
		if i == 0 {
			out.first = float64(slices.Max(f.sent)) - mean(f.sent)
		}
		if i >= reports/3 {
			out.herd += float64(slices.Max(f.sent)) / mean(f.sent) / judged
			out.fullest += float64(slices.Max(f.taken)) / mean(f.taken) / judged
		}
		sent += f.sent[0]
	}
	out.full = float64(sent) / float64(reports) / (mean(f.sent) * float64(s.workers))
	return out, nil
}

// storms are surges of many allocators and of few, with each K and jitter.
func storms(r *scenario.Run) error {
	judged := setupOf(r)
	few := judged
	few.allocators = max(few.relays, 2*judged.workers)
	type kase struct {
		setup
		judged bool
	}
	cases := []kase{{judged, true}}
	jitters4 := []int{0, 4, 16}
	ks := []int{1, 2, 3, 8}
	for _, base := range []setup{judged, few} {
		for _, k := range ks {
			for _, jitter := range jitters4 {
				if k == 1 && jitter > 0 {
					continue // no load is read
				}
				next := base
				next.spec = specOf(r, k, jitter)
				cases = append(cases, kase{next, false})
			}
		}
	}
	for _, jitter := range []int{0, r.Int("jitter")} { // the last two
		next := few
		next.spec = specOf(r, 8, jitter)
		cases = append(cases, kase{next, false})
	}
	results := make([]outcome, len(cases))
	if err := r.Parallel(len(cases), func(i int) (err error) {
		results[i], err = cases[i].run(r, r.Int("reports"))
		return err
	}); err != nil {
		return err
	}
	t := r.Table(scenario.Table{
		Name: "storms", Title: "allocators that take a slot between two reports and hear of nobody else", Group: 1,
		Note: "More samples make a larger herd, and the jitter acts only where loads differ by no more than it: with few allocators or a large jitter.",
		Columns: []scenario.Column{
			{Name: "allocators", Key: true}, {Name: "samples", Key: true}, {Name: "jitter", Key: true}, {Name: "judged", Key: true},
			{Name: "busiest between two reports ÷ mean", Digits: 2}, {Name: "fullest ÷ mean", Digits: 3},
			{Name: "before the first report: busiest above the mean", Unit: "slots", Digits: 1},
		},
	})
	for i, c := range cases[:len(cases)-2] {
		mark := ""
		if c.judged {
			mark = "these settings"
		}
		t.Add(c.allocators, c.spec.Samples, c.spec.SlotJitter, mark, results[i].herd, results[i].fullest, results[i].first)
	}
	r.Check(herd, results[0].herd, judged.String())
	r.Check(fullest, results[0].fullest, judged.String())
	last := len(cases) - 1
	if few.relays == 1 && !few.blind {
		r.Skip(jitters, "one relay that counts what it sends makes no herd")
	} else {
		r.Check(jitters, results[last].herd/results[last-1].herd, cases[last].setup.String())
	}

	find := func(allocators, k, jitter int) *outcome {
		return &results[1+slices.IndexFunc(cases[1:], func(c kase) bool {
			return c.allocators == allocators && c.spec.Samples == k && c.spec.SlotJitter == jitter
		})]
	}
	p := r.Plot(scenario.Plot{
		Name: "herd", Title: fmt.Sprintf("The herd between two reports: %d and %d allocators, %d workers", judged.allocators, few.allocators, judged.workers),
		X: scenario.Axis{Label: "endpoints compared (K)", Unit: "1"}, Y: scenario.Axis{Label: "new slots of the busiest worker ÷ mean", Unit: "1"},
	})
	for _, allocators := range []int{judged.allocators, few.allocators} {
		for _, jitter := range jitters4 {
			line := p.Line(fmt.Sprintf("%d allocators, jitter %d", allocators, jitter))
			for _, k := range ks[1:] {
				line.At(float64(k), find(allocators, k, jitter).herd)
			}
		}
		if few.allocators == judged.allocators {
			break
		}
	}
	p.Conclusion = fmt.Sprintf("A herd grows with K, not with the number of allocators: %.1f times the mean at K = 2 and %.1f at K = 8; a jitter of 4 takes %.1f to %.1f where the allocators are few.",
		find(judged.allocators, 2, 0).herd, find(judged.allocators, 8, 0).herd, find(few.allocators, 8, 0).herd, find(few.allocators, 8, 4).herd)

	p = r.Plot(scenario.Plot{
		Name: "waves", Title: fmt.Sprintf("%d allocators from an empty pool, report after report, no jitter", judged.allocators),
		X: scenario.Axis{Label: "time", Unit: "reports"}, Y: scenario.Axis{Label: "fullest worker above the mean", Unit: "slots"},
	})
	for _, k := range []int{1, 2, 8} {
		line := p.Line(fmt.Sprintf("K = %d", k))
		for i, above := range find(judged.allocators, k, 0).above {
			line.At(float64(i+1), above)
		}
	}
	p.Conclusion = fmt.Sprintf("Two samples keep the fullest worker within %.0f %% of the mean however old the loads; one leaves it to the ring (%.0f %% above), eight to the herd (%.0f %%).",
		100*(find(judged.allocators, 2, 0).fullest-1), 100*(find(judged.allocators, 1, 0).fullest-1), 100*(find(judged.allocators, 8, 0).fullest-1))
	return nil
}
