package validation

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ringway/ringway/selection"
	"github.com/ringway/ringway/sims/internal/scenario"
)

// The promises, by name.
const (
	median   = "p50 simulated, off the measured one"
	tail     = "p99 simulated, off the measured one"
	shares   = "balance simulated, off the measured one"
	moved    = "connections opened after a worker's death, off the simulated ones"
	ranges   = "relays that plan as the model does"
	answered = "requests that failed"
)

// New returns the validation as a scenario, with settings, promises and a table. The validation
// starts processes and depends on the machine, so it is not part of "run all".
func New() scenario.Scenario { return with(selection.DefaultConfig(), observeReality) }

type observer func(context.Context, Case, []request, int, func()) (reality, error)

func with(simulated selection.Config, observe observer) scenario.Scenario {
	return scenario.Scenario{
		Name: "validate",
		Asks: "Do a fleet of processes and the simulation of it show the same?",
		Settings: []scenario.Setting{
			{Name: "relays", Help: "relays; 3 times the workers must be a multiple", Unit: "relays", Default: 6, Quick: 3, Min: 3, Max: 20},
			{Name: "workers", Help: "workers, of which one in five is three times slower", Unit: "workers", Default: 20, Quick: 5, Min: 5, Max: 50},
			{Name: "load", Help: "requests as a share of the capacity of all workers", Unit: "1", Default: 0.25, Min: 0.01, Max: 0.9},
			{Name: "measured", Help: "how long requests are measured, after a warm-up of 6 s", Default: 24 * time.Second, Quick: 2 * time.Second, Min: time.Second, Max: 5 * time.Minute},
		},
		Promises: []scenario.Promise{
			{Name: ranges, Relation: scenario.Equals, Bound: 1, Why: "1 is all of them: ranges and weights are equal, or nothing else can be compared"},
			{Name: median, Relation: scenario.AtMost, Bound: 0.15, Why: "in parts of the measured one"},
			{Name: tail, Relation: scenario.AtMost, Bound: 0.15, Why: "in parts of the measured one"},
			{Name: shares, Relation: scenario.AtMost, Bound: 0.05, Why: "in parts of a worker's fair share: of the slow workers' part and of the spread of all; the fullest worker is one of twenty, and by chance off by more"},
			{Name: moved, Relation: scenario.AtMost, Bound: 0, Unit: "connections", Why: "plans and tables are exact on both sides"},
			{Name: answered, Relation: scenario.AtMost, Bound: 0, Unit: "requests"},
		},
		Takes: 65 * time.Second, TakesQuick: 35 * time.Second,
		Run: func(r *scenario.Run) error { return run(r, simulated, observe) },
	}
}

func run(r *scenario.Run, simulated selection.Config, watch observer) error {
	c := Case{Relays: r.Int("relays"), Workers: r.Int("workers"), Load: r.Float("load"), Measured: r.Duration("measured"), Seed: r.Seed(), selection: simulated}
	if c.Workers%5 != 0 || perWorker*c.Workers%c.Relays != 0 {
		return fmt.Errorf("%d relays and %d workers: workers must be a multiple of five, and three times the workers one of the relays", c.Relays, c.Workers)
	}
	r.Steps(realitySteps + 1)
	requests, model, err := simulateAll(c)
	if err != nil {
		return err
	}
	// The victim is the fullest worker that is not slow, because its death moves most traffic.
	victim, slow := 0, c.slowFactors()
	for i, n := range model[0].byWorker {
		if slow[i] == 1 && (slow[victim] != 1 || n > model[0].byWorker[victim]) {
			victim = i
		}
	}
	before, opened, err := simulateDeath(c, victim)
	if err != nil {
		return err
	}
	r.Step()
	real, err := watch(r.Context(), c, requests, victim, r.Step)
	if err != nil {
		return err
	}
	show(r, c, model, real, before, opened)
	return nil
}

func show(r *scenario.Run, c Case, model []observation, real reality, before, opened int) {
	t := r.Table(scenario.Table{
		Name: "sides", Title: "The same requests, simulated and measured", Section: "validation",
		Note: "Simulated is the mean of several runs with the same requests, in which relays draw other pairs of workers; chance is how far the farthest of these runs is from it.",
		Columns: []scenario.Column{
			{Name: "what", Key: true}, {Name: "unit", Key: true}, {Name: "simulated", Digits: 2}, {Name: "chance", Unit: "± %", Digits: 1},
			{Name: "measured", Digits: 2}, {Name: "difference", Unit: "%", Digits: 1},
		},
	})
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	compare := func(what, unit, promise string, measured float64, of func(observation) float64) (simulated float64) {
		center, spread := 0.0, 0.0
		for _, m := range model {
			center += of(m) / float64(len(model))
		}
		for _, m := range model {
			spread = max(spread, math.Abs(of(m)-center)/center)
		}
		off := (center - measured) / measured
		t.Add(what, unit, center, 100*spread, measured, 100*off)
		if promise != "" {
			r.Check(promise, math.Abs(off), fmt.Sprintf("%s; 1 %% of the requests were sent more than %.1f ms late, by a busy machine", what, ms(real.late)))
		}
		return center
	}
	slow := c.slowFactors()
	for _, q := range []struct {
		name    string
		q       float64
		promise string
	}{{"p50", 0.5, median}, {"p90", 0.9, ""}, {"p99", 0.99, tail}} {
		at := func(o observation) float64 { return ms(quantile(o.latencies, q.q)) }
		compare(q.name+" at the worker", "ms", q.promise, at(real.observation), at)
	}
	compare("mean, in the relays", "ms", "", ms(real.inRelay), func(o observation) float64 { return ms(mean(o.latencies)) })
	for _, b := range []struct {
		name   string
		judged bool
		of     func(observation) float64
	}{
		{"slow workers' part ÷ fair part", true, func(o observation) float64 { return slowPart(o.byWorker, slow) / slowShare }},
		{"deviation of workers ÷ mean", true, func(o observation) float64 { return deviation(o.byWorker) }},
		{"fullest worker ÷ mean", false, func(o observation) float64 { return fullest(o.byWorker) }},
	} {
		simulated := compare(b.name, "", "", b.of(real.observation), b.of)
		if b.judged {
			r.Check(shares, math.Abs(simulated-b.of(real.observation)), b.name)
		}
	}
	t.Add("connections of the fleet", "", float64(before), nil, float64(real.connections), nil)
	t.Add("opened after a worker's death", "", float64(opened), nil, float64(real.opened), nil)
	r.Check(moved, math.Abs(float64(opened-real.opened)), "death of one worker")
	alike := 0.0
	if real.planned {
		alike = 1
	}
	r.Check(ranges, alike, "all relays")
	where := "measured"
	if len(real.errors) > 0 {
		where = real.errors[0].Error()
	}
	r.Check(answered, float64(model[0].failed+real.failed), where)

	side := r.Table(scenario.Table{
		Name: "machine", Title: "What only the processes have", Section: "validation",
		Note:    "The median of requests without work is taken off each measured latency; the mean in the relays is as measured.",
		Columns: []scenario.Column{{Name: "what", Key: true}, {Name: "unit", Key: true}, {Name: "measured", Digits: 2}},
	})
	for _, row := range []struct {
		what, unit string
		value      float64
	}{
		{"requests that count", "", float64(len(real.latencies))},
		{"requests per second", "", float64(len(real.latencies)) / c.Measured.Seconds()},
		{"a request without work, p50", "ms", ms(real.overhead)},
		{"a request without work, p99", "ms", ms(real.overheadP99)},
		{"sent after it was due, p99", "ms", ms(real.late)},
		{"slept too long, p50", "ms", ms(real.overslept)},
		{"a death noticed by all relays", "s", real.noticed.Seconds()},
	} {
		side.Add(row.what, row.unit, row.value)
	}
	plot(r, model[0], real)
}

func plot(r *scenario.Run, model observation, real reality) {
	p := r.Plot(scenario.Plot{
		Name: "latencies", Title: "Time at the worker", Conclusion: "The two curves are the same requests, simulated and measured.",
		X: scenario.Axis{Label: "requests that took no longer", Unit: "%"}, Y: scenario.Axis{Label: "time at the worker", Unit: "ms", Log: true},
	})
	for _, side := range []struct {
		line      *scenario.Series
		latencies []time.Duration
	}{{p.Line("simulated"), model.latencies}, {p.Dashed("measured"), real.latencies}} {
		sorted := slices.Sorted(slices.Values(side.latencies))
		for q := 1.0; q < 100; q++ {
			took := sorted[int(q/100*float64(len(sorted)))]
			side.line.At(q, max(0.01, float64(took)/float64(time.Millisecond)))
		}
	}
}

func mean(of []time.Duration) time.Duration {
	sum := time.Duration(0)
	for _, d := range of {
		sum += d
	}
	return sum / time.Duration(max(1, len(of)))
}

func total(counts []int) (sum int) {
	for _, n := range counts {
		sum += n
	}
	return max(1, sum)
}

// fullest returns the largest count as a multiple of the mean.
func fullest(counts []int) float64 {
	return float64(slices.Max(counts)*len(counts)) / float64(total(counts))
}

// deviation returns the standard deviation of the counts, divided by their mean.
func deviation(counts []int) float64 {
	center := float64(total(counts)) / float64(len(counts))
	sum := 0.0
	for _, n := range counts {
		sum += (float64(n)/center - 1) * (float64(n)/center - 1)
	}
	return math.Sqrt(sum / float64(len(counts)))
}

// slowPart returns the share of all requests that slow workers got.
func slowPart(counts []int, slow []float64) float64 {
	sum := 0
	for i, n := range counts {
		if slow[i] > 1 {
			sum += n
		}
	}
	return float64(sum) / float64(total(counts))
}
