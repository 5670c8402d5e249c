// Package surge simulates thousands of allocators that take slots at the same time, based on
// old load reports.
//
// Relays use the real strategy slots and read loads from the real balancer: the last report of
// a worker plus the requests that the relay has sent since. Between two reports a relay does
// not see the requests of other relays, so all relays choose the workers with the lowest
// reported load: a herd. The size of the herd depends on the number of compared endpoints (K),
// not on the number of all endpoints; the jitter matters only if loads differ by a few slots.
//
//	surge.go  settings and promises; many allocators, report after report: K and jitter
//	fleet.go  relays, allocators, workers, and the time between two reports
package surge

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ringway/ringway/internal/strategy"
	"github.com/ringway/ringway/sims/internal/scenario"
)

// The promises, by name.
const (
	herd     = "slots that the busiest worker gets between two reports ÷ mean"
	fullest  = "slots of the fullest worker ÷ mean, on old loads"
	jitters  = "herd of 8 samples with the jitter ÷ without, few allocators"
	coldPool = "a cold pool with counted loads: slots of the fullest worker above the mean"
	avoids   = "share of the slots that a worker with 50 taken gets"
)

// New returns the scenario.
func New() scenario.Scenario {
	normal := strategy.Default(strategy.Slots)
	return scenario.Scenario{
		Name: "surge",
		Asks: "What do thousands of allocators do that take slots at the same time, on old loads?",
		Settings: []scenario.Setting{
			{Name: "workers", Help: "workers", Default: 100, Min: 10, Max: 1000},
			{Name: "relays", Help: "relays, each with an own view of the loads", Default: 20, Min: 1, Max: 1000},
			{Name: "allocators", Help: "allocators of all relays; each takes a slot between two reports", Default: 2000, Min: 10, Max: 100_000},
			{Name: "reports", Help: "reports of each worker; the first third is not judged", Default: 60, Quick: 24, Min: 6, Max: 10_000},
			{Name: "stay", Help: "how long a slot is held on average", Unit: "reports", Default: 10, Min: 2, Max: 1000},
			{Name: "blind", Help: "relays read the reports alone and do not count what they sent since", Default: false},
			{Name: "samples", Help: "endpoints that are compared (K), of the judged case", Default: normal.Samples, Min: 1, Max: 8},
			{Name: "jitter", Help: "the most that is added to a load by chance, of the judged case", Unit: "slots", Default: normal.SlotJitter, Min: 0, Max: 64},
			{Name: "vnodes", Help: "places of an endpoint on the ring (V)", Default: normal.VirtualNodes, Min: 1, Max: strategy.MaxVirtualNodes},
			{Name: "trials", Help: "cold pools that are filled", Default: 100, Quick: 20, Min: 1, Max: 10_000},
		},
		Promises: []scenario.Promise{
			{Name: herd, Relation: scenario.AtMost, Bound: 3, Why: "the worker that looks emptiest wins each comparison: K of K times the mean, and chance"},
			{Name: fullest, Relation: scenario.AtMost, Bound: 1.25, Why: "with slots held for ten reports; what one report does the next undoes"},
			{Name: jitters, Relation: scenario.AtMost, Bound: 0.9, Why: "where loads differ by a few slots only, the jitter spreads which worker looks emptiest"},
			{Name: coldPool, Relation: scenario.AtMost, Bound: 2, Unit: "slots", Why: "on average over the pools, without the jitter; with it, see the table"},
			{Name: avoids, Relation: scenario.AtMost, Bound: 0.01, Why: "it is picked only when every sample leads to it"},
		},
		Takes: 2 * time.Second, TakesQuick: time.Second,
		Run: func(r *scenario.Run) error {
			for _, part := range []func(*scenario.Run) error{runSurges, cold} {
				if err := part(r); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// setupOf returns the surge of the settings of a run.
func setupOf(r *scenario.Run) setup {
	return setup{
		workers: r.Int("workers"), relays: min(r.Int("relays"), r.Int("allocators")), allocators: r.Int("allocators"),
		stay: r.Int("stay"), blind: r.Bool("blind"), spec: specOf(r, r.Int("samples"), r.Int("jitter")),
	}
}

func specOf(r *scenario.Run, samples, jitter int) strategy.Spec {
	spec := strategy.Default(strategy.Slots)
	spec.VirtualNodes, spec.Samples, spec.SlotJitter = r.Int("vnodes"), samples, jitter
	return spec
}

func (s setup) String() string {
	return fmt.Sprintf("%d allocators, %d workers, K = %d, jitter %d", s.allocators, s.workers, s.spec.Samples, s.spec.SlotJitter)
}

// outcome holds the results of one surge.
type outcome struct {
	herd    float64   // slots of the busiest worker between two reports ÷ mean, on average
	fullest float64   // slots of the fullest worker ÷ mean at each report, on average
	first   float64   // slots of the busiest worker − mean, before the second report
	above   []float64 // slots of the fullest worker − mean, by report
	full    float64   // share of the new slots that the first worker got
}

func (s setup) run(r *scenario.Run, reports int) (outcome, error) {
	var out outcome
	// All setups use the same random streams, so that results are comparable.
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

// runSurges runs surges of many and of few allocators, with each K and jitter.
func runSurges(r *scenario.Run) error {
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
					continue // K = 1 reads no load
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
		Name: "storms", Title: "allocators that take a slot between two reports and know of no other allocator", Group: 1,
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
	p.Reference(1, "the mean")
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
	p.Event(1, "all allocators begin")
	p.Event(float64(r.Int("reports")/3+1), "judged from here")
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

// full is how many slots of the overloaded worker are in use.
const full = 50

// cold fills empty pools from one relay that counts its own requests, and measures how often a
// full worker is picked.
func cold(r *scenario.Run) error {
	n, trials := r.Int("workers"), r.Int("trials")
	jitters := []int{0, r.Int("jitter")}
	above := make([][]float64, len(jitters))
	for i := range above {
		above[i] = make([]float64, trials)
	}
	var overloaded outcome
	busy := setupOf(r)
	busy.full = full
	busy.workers = max(8, n/4) // few workers, so that a fair share is far too much for the full one
	// Each other worker gets a few slots, always fewer than the full worker has.
	busy.allocators, busy.stay = max(busy.relays, 5*busy.workers), 2
	if err := r.Parallel(trials+1, func(i int) (err error) {
		if i == trials {
			overloaded, err = busy.run(r, r.Int("reports"))
			return err
		}
		for k, jitter := range jitters {
			s := setup{workers: n, relays: 1, allocators: n, blind: r.Bool("blind"), spec: specOf(r, r.Int("samples"), jitter)}
			f, err := newFleet(s, func(stream string) *rand.Rand { return r.Rand(fmt.Sprintf("cold-%d-%s", i, stream)) })
			if err != nil {
				return err
			}
			if err := f.interval(); err != nil {
				return err
			}
			above[k][i] = float64(slices.Max(f.taken)) - mean(f.taken)
		}
		return nil
	}); err != nil {
		return err
	}
	t := r.Table(scenario.Table{
		Name: "cold", Title: fmt.Sprintf("a cold pool of %d workers: one relay takes a slot for each, and counts", n),
		Columns: []scenario.Column{
			{Name: "jitter", Key: true}, {Name: "pools"}, {Name: "fullest above the mean", Unit: "slots", Digits: 2}, {Name: "at worst", Unit: "slots"}, {Name: "pools above 2", Unit: "%", Digits: 1},
		},
	})
	for k, jitter := range jitters {
		average, more := 0.0, 0
		for _, a := range above[k] {
			average += a / float64(trials)
			if a > 2 {
				more++
			}
		}
		t.Add(jitter, trials, average, slices.Max(above[k]), 100*float64(more)/float64(trials))
		if k == 0 {
			r.Check(coldPool, average, fmt.Sprintf("%d pools of %d workers", trials, n))
		} else if jitter > 0 {
			t.Note = fmt.Sprintf("The jitter costs a cold pool up to %.0f slots: it hides the only difference that there is.", slices.Max(above[k])-slices.Max(above[0]))
		}
		if jitters[1] == 0 {
			break
		}
	}
	r.Check(avoids, overloaded.full, fmt.Sprintf("fair is %.3f; %d allocators", 1/float64(busy.workers), busy.allocators))
	return nil
}
