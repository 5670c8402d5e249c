package overload

import (
	"fmt"
	"time"

	"github.com/ringway/ringway/selection"
	"github.com/ringway/ringway/sims/internal/policy"
	"github.com/ringway/ringway/sims/internal/queueing"
	"github.com/ringway/ringway/sims/internal/scenario"
)

// The promises about retries, by name.
const (
	stormGoodput = "requests answered in time during the rush ÷ what the workers can serve"
	recovers     = "time from the end of the rush until all requests are answered in time"
	amplified    = "attempts ÷ requests during the rush"
)

// RetryStorm returns the scenario of an overload that retries prolong: with and without a retry
// budget, with and without a limit on the requests in flight at a relay.
//
// Callers wait a limited time for an answer and then retry; the worker is not notified and still
// serves the old attempt. A rush of some seconds fills the queues. When every answer comes too
// late, all work is wasted and every request is sent several times. The retries keep the queues
// full, so the overload continues after the rush. A budget limits the number of retries. A limit
// on requests in flight keeps the queues short, so that answers are in time.
func RetryStorm() scenario.Scenario {
	return scenario.Scenario{
		Name: "retry-storm",
		Asks: "What do retries do to a fleet in a rush, with and without a budget and a bound on requests in flight?",
		Settings: []scenario.Setting{
			{Name: "relays", Help: "relays, with 5 workers of 4 slots for each", Default: 10, Quick: 5, Min: 3, Max: 200},
			{Name: "load", Help: "arrivals ÷ capacity before and after the rush", Default: 0.8, Min: 0.1, Max: 0.98},
			{Name: "rush", Help: "times as many arrivals in the rush", Default: 1.75, Min: 1.0, Max: 20.0},
			{Name: "rush-time", Help: "how long the rush is", Default: 10 * time.Second, Quick: 6 * time.Second, Min: time.Second, Max: time.Minute},
			{Name: "after", Help: "how long the fleet is watched after it", Default: 40 * time.Second, Quick: 14 * time.Second, Min: 5 * time.Second, Max: 10 * time.Minute},
			{Name: "timeout", Help: "how long a caller waits for an attempt", Default: time.Second, Min: 50 * time.Millisecond, Max: 10 * time.Second},
			{Name: "attempts", Help: "attempts for each request", Default: 5, Min: 1, Max: 20},
			{Name: "backoff", Help: "pause before the first retry, doubled for each further one", Default: 50 * time.Millisecond, Min: time.Duration(0), Max: 10 * time.Second},
			{Name: "budget", Help: "retries are paid from a budget, in the judged case", Default: true},
			{Name: "share", Help: "retries that the budget allows ÷ requests", Default: 0.2, Min: 0.0, Max: 1.0},
			{Name: "shedding", Help: "relays refuse requests beyond max-in-flight, in the judged case", Default: true},
			{Name: "max-in-flight", Help: "requests that a relay carries at a time, for 20 slots of workers", Unit: "requests", Default: 300, Min: 1, Max: 1_000_000},
		},
		Promises: []scenario.Promise{
			{Name: stormGoodput, Relation: scenario.AtLeast, Bound: 0.9, Why: "a worker that serves only requests in time serves at full capacity"},
			{Name: recovers, Relation: scenario.AtMost, Bound: 3, Unit: "s", Why: "the requests in flight are less than a second of work"},
			{Name: amplified, Relation: scenario.AtMost, Bound: 1.3, Why: "a fifth of the requests, and what the budgets had saved up"},
		},
		Takes: 2 * time.Second, TakesQuick: time.Second,
		Run: runStorms,
	}
}

// savings is selection.RetryBudget's savings of a relay.
const savings = 500

// defence lists the measures against a retry storm.
type defence struct{ retries, budget, shedding bool }

func (d defence) String() string {
	switch {
	case !d.retries:
		return "no retries"
	case d.budget && d.shedding:
		return "budget and shedding"
	case d.budget:
		return "budget alone"
	case d.shedding:
		return "shedding alone"
	}
	return "neither"
}

// storm holds the results of one defence.
type storm struct {
	seconds   []queueing.Second
	goodput   float64 // answered in time in the rush ÷ capacity
	amplified float64 // attempts ÷ requests in the rush
	after     float64 // answered in time ÷ requests, after the rush
	stays     float64 // attempts ÷ requests in the last 5 s
	recovers  float64 // s; the whole time after the rush if the fleet never recovers
	wasted    int     // answers that came after the timeout of the attempt
}

func runStorms(r *scenario.Run) error {
	judged := defence{true, r.Bool("budget"), r.Bool("shedding")}
	defences := []defence{{}, {true, false, false}, {true, true, false}, {true, false, true}, {true, true, true}}
	results := make([]storm, len(defences))
	if err := r.Parallel(len(defences), func(i int) (err error) {
		results[i], err = runStorm(r, defences[i])
		return err
	}); err != nil {
		return err
	}
	t := r.Table(scenario.Table{
		Name: "storms", Title: fmt.Sprintf("%.2f times the arrivals for %v at %.0f %% load, up to %d attempts of %v", r.Float("rush"), r.Duration("rush-time"), 100*r.Float("load"), r.Int("attempts"), r.Duration("timeout")),
		Columns: []scenario.Column{
			{Name: "against it", Key: true}, {Name: "judged"}, {Name: "in time in the rush ÷ capacity", Digits: 2}, {Name: "attempts ÷ requests in the rush", Digits: 2},
			{Name: "in time after it", Unit: "%", Digits: 1}, {Name: "attempts ÷ requests at the end", Digits: 2}, {Name: "until all are in time", Unit: "s"}, {Name: "answers after the caller gave up"},
		},
	})
	served := r.Plot(scenario.Plot{
		Name: "in-time", Title: "Requests answered in time ÷ requests, by the second in which they began",
		X: scenario.Axis{Label: "time", Unit: "s"}, Y: scenario.Axis{Label: "answered in time", Unit: "%"},
	})
	sent := r.Plot(scenario.Plot{
		Name: "attempts", Title: "Attempts ÷ requests",
		X: scenario.Axis{Label: "time", Unit: "s"}, Y: scenario.Axis{Label: "attempts ÷ requests", Unit: "1"},
	})
	for _, p := range []*scenario.Plot{served, sent} {
		p.Event(begins.Seconds(), "the rush begins")
		p.Event((begins + r.Duration("rush-time")).Seconds(), "it ends")
	}
	byName := map[string]*storm{}
	for i, d := range defences {
		o := &results[i]
		byName[d.String()] = o
		mark := ""
		if d == judged {
			mark = "these settings"
			where := d.String()
			r.Check(stormGoodput, o.goodput, where)
			r.Check(recovers, o.recovers, where)
			r.Check(amplified, o.amplified, where)
		}
		var until any = int(o.recovers)
		if o.recovers >= r.Duration("after").Seconds() {
			until = "never"
		}
		t.Add(d.String(), mark, o.goodput, o.amplified, 100*o.after, o.stays, until, o.wasted)
		in, out := served.Line(d.String()), sent.Line(d.String())
		for s, at := range o.seconds[:len(o.seconds)-1] { // the last second has no arrivals
			if at.Requests > 0 {
				in.At(float64(s), 100*float64(at.Served)/float64(at.Requests))
				out.At(float64(s), float64(at.Attempts)/float64(at.Requests))
			}
		}
	}
	neither, both := byName["neither"], byName["budget and shedding"]
	t.Note = "Capacity is what the workers can serve. A request counts in the second in which it began, at whichever attempt it was answered."
	served.Conclusion = fmt.Sprintf("With a budget and shedding %.0f %% of the requests after the rush are answered in time, with neither %.0f %%.", 100*both.after, 100*neither.after)
	sent.Conclusion = fmt.Sprintf("Unbounded retries multiply the traffic by %.1f in the rush, a budget by %.1f.", neither.amplified, both.amplified)
	return nil
}

// runStorm runs the storm against one defence.
func runStorm(r *scenario.Run, d defence) (storm, error) {
	from, to := begins, begins+r.Duration("rush-time")
	end := to + r.Duration("after")
	callers := &queueing.Callers{Timeout: r.Duration("timeout"), Attempts: 1, Backoff: r.Duration("backoff")}
	if d.retries {
		callers.Attempts = r.Int("attempts")
	}
	if d.budget {
		callers.Budgeted, callers.Share, callers.Savings = true, r.Float("share"), savings
	}
	if d.shedding {
		callers.MaxInFlight = r.Int("max-in-flight")
	}
	result, err := queueing.Run(queueing.Config{
		Topology: topology(r), Load: r.Float("load"), Seed: r.Seed(),
		Scenario: queueing.Scenario{Name: "rush", End: at(end), Rush: queueing.Rush{From: at(from), To: at(to), Factor: r.Float("rush")}},
		Policy:   policy.Ringway("ringway", selection.DefaultConfig()),
		Callers:  callers,
		// The services queue without limit, so only relays refuse requests.
		QueueBound: 1 << 30,
	})
	if err != nil {
		return storm{}, err
	}
	return judgeStorm(result.Seconds, int(from.Seconds()), int(to.Seconds()), topology(r).Capacity()), nil
}

// judgeStorm computes the results from the seconds of a run.
func judgeStorm(seconds []queueing.Second, from, to int, capacity float64) storm {
	o := storm{seconds: seconds}
	sum := func(seconds []queueing.Second) (s queueing.Second) {
		for _, one := range seconds {
			s.Requests += one.Requests
			s.Served += one.Served
			s.Attempts += one.Attempts
			s.Wasted += one.Wasted
		}
		return s
	}
	last := len(seconds) - 1 // has no arrivals, only events after the last arrival
	rush, after, end := sum(seconds[from:to]), sum(seconds[to:last]), sum(seconds[max(to, last-5):last])
	o.goodput = float64(rush.Served) / (capacity * float64(to-from))
	o.amplified = float64(rush.Attempts) / float64(rush.Requests)
	o.after = float64(after.Served) / float64(after.Requests)
	o.stays = float64(end.Attempts) / float64(end.Requests)
	o.wasted = sum(seconds).Wasted
	for s := last - 1; s >= to; s-- {
		if float64(seconds[s].Served) < enough*float64(seconds[s].Requests) {
			o.recovers = float64(s + 1 - to)
			break
		}
	}
	return o
}
