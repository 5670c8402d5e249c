// Package overload simulates a fleet with several times more requests than its capacity:
// without a limit on requests in flight, with the published limits of other systems, and
// with the limit of package internal/overload.
//
// Workers queue without limit and callers wait for a limited time. Without a limit in flight
// the queues grow until every answer comes too late, and all work of the fleet is wasted. A
// limit must work without a setting for the fleet, and must not refuse requests while the
// load is below the capacity, even if the load is uneven.
//
//	overload.go    settings and promises; the overload, and a high load below the capacity
//	limits.go      the limits
//	retrystorm.go  an overload that retries prolong
package overload

import (
	"fmt"
	"math"
	"time"

	"github.com/ringway/ringway/selection"
	"github.com/ringway/ringway/sims/internal/policy"
	"github.com/ringway/ringway/sims/internal/queueing"
	"github.com/ringway/ringway/sims/internal/scenario"
)

// The promises, by name.
const (
	goodput = "answered in time ÷ what the workers can serve, the worst second after the fifth"
	normal  = "time from the end of the overload until all requests are answered in time"
	refused = "refused ÷ requests while the fleet can keep up"
)

// New returns the scenario.
func New() scenario.Scenario {
	return scenario.Scenario{
		Name: "overload",
		Asks: "Which limit on requests in flight keeps an overloaded fleet at work, and refuses nothing otherwise?",
		Settings: []scenario.Setting{
			{Name: "relays", Help: "relays, with 5 workers of 4 slots for each", Default: 10, Min: 3, Max: 200},
			{Name: "overload", Help: "arrivals ÷ capacity during the overload", Default: 3.0, Min: 1.1, Max: 20.0},
			{Name: "lasts", Help: "how long the overload is", Default: 60 * time.Second, Quick: 12 * time.Second, Min: 6 * time.Second, Max: 10 * time.Minute},
			{Name: "before", Help: "arrivals ÷ capacity before and after it", Default: 0.7, Min: 0.1, Max: 0.95},
			{Name: "timeout", Help: "how long a caller waits for an answer", Default: time.Second, Min: 50 * time.Millisecond, Max: 30 * time.Second},
			{Name: "busy", Help: "arrivals ÷ capacity while the fleet can keep up, bursts included", Default: 0.9, Min: 0.1, Max: 2.0},
			{Name: "burst", Help: "times as many arrivals in the bursts of 200 ms, one every 2 s", Default: 2.0, Min: 1.0, Max: 8.0},
			{Name: "busy-for", Help: "how long the fleet is busy", Default: 60 * time.Second, Quick: 24 * time.Second, Min: 20 * time.Second, Max: 10 * time.Minute},
			{Name: "limit", Help: "the limit that is judged", Default: ringwayLimit, OneOf: []string{none, envoyGradient, netflixGradient, kratosBBR, ringwayLimit}},
		},
		Promises: []scenario.Promise{
			{Name: goodput, Relation: scenario.AtLeast, Bound: 0.95, Why: "workers that always have something to do, for callers who still wait"},
			{Name: normal, Relation: scenario.AtMost, Bound: 1, Unit: "s", Why: "the queues hold less than half a second of work"},
			{Name: refused, Relation: scenario.AtMost, Bound: 0.0001, Why: "bursts, slow workers, a new one and a dead one are no overload"},
		},
		Takes: 3 * time.Second, TakesQuick: time.Second,
		Run: run,
	}
}

// Of both scenarios.
const (
	// begins is when the overload begins.
	begins = 10 * time.Second
	// after is the time from the end of the overload to the end of the run.
	after = 10 * time.Second
	// settled is the number of seconds of the overload before goodput is measured.
	settled = 5
	// enough is the share of requests answered in time that counts as all.
	enough = 0.99
	// knownWorkers is the number of workers that a relay knows.
	knownWorkers = 15
)

// outcome holds the results of one limit.
type outcome struct {
	seconds []queueing.Second
	goodput float64 // answered in time ÷ capacity, worst second after the fifth
	mean    float64 // answered in time ÷ capacity, mean of the seconds after the fifth
	normal  float64 // s from the end of the overload until all requests are answered in time
	refused float64 // ÷ requests, at a load below the capacity
	late    float64 // not answered in time ÷ requests, at a load below the capacity
	p99     time.Duration
}

func run(r *scenario.Run) error {
	limits := []string{none, envoyGradient, netflixGradient, kratosBBR, ringwayLimit}
	if r.Quick() {
		limits = []string{r.Text("limit")}
	}
	results := make([]outcome, len(limits))
	if err := r.Parallel(2*len(limits), func(i int) error {
		if i%2 == 0 {
			return results[i/2].overloaded(r, limits[i/2])
		}
		return results[i/2].busy(r, limits[i/2])
	}); err != nil {
		return err
	}
	t := r.Table(scenario.Table{
		Name: "limits", Title: fmt.Sprintf("%.1f times what the fleet can serve for %v, and a load of %.0f %% with bursts, slow workers, a new and a dead one; callers wait for %v", r.Float("overload"), r.Duration("lasts"), 100*r.Float("busy"), r.Duration("timeout")),
		Columns: []scenario.Column{
			{Name: "limit", Key: true}, {Name: "judged"}, {Name: "overload: in time ÷ capacity, worst second", Digits: 3}, {Name: "mean", Digits: 3}, {Name: "until all are in time", Unit: "s"},
			{Name: "busy: refused", Unit: "%", Digits: 3}, {Name: "not in time", Unit: "%", Digits: 3}, {Name: "p99", Unit: "ms"},
		},
		Note: "Each limit has the defaults that were published. A request counts in the second in which it began.",
	})
	served := r.Plot(scenario.Plot{
		Name: "in-time", Title: "Requests answered in time ÷ what the workers can serve, by the second in which they began",
		X: scenario.Axis{Label: "time", Unit: "s"}, Y: scenario.Axis{Label: "answered in time ÷ capacity", Unit: "1"},
	})
	served.Event(begins.Seconds(), "the overload begins")
	served.Event((begins + r.Duration("lasts")).Seconds(), "it ends")
	served.Reference(1, "capacity")
	for i, name := range limits {
		o := &results[i]
		mark := ""
		if name == r.Text("limit") {
			mark = "these settings"
			r.Check(goodput, o.goodput, name)
			r.Check(normal, o.normal, name)
			r.Check(refused, o.refused, name)
			served.Conclusion = fmt.Sprintf("With the limit %s the worst second after the fifth has %.0f %% of what the workers can serve.", name, 100*o.goodput)
		}
		var until any = int(o.normal)
		if o.normal >= after.Seconds() {
			until = "never"
		}
		t.Add(name, mark, o.goodput, o.mean, until, 100*o.refused, 100*o.late, int(o.p99.Milliseconds()))
		line := served.Line(name)
		for s, at := range o.seconds[:len(o.seconds)-1] { // the last second has no arrivals
			line.At(float64(s), float64(at.Served)/topology(r).Capacity())
		}
	}
	return nil
}

func at(d time.Duration) selection.Instant { return selection.Instant(d) }

func topology(r *scenario.Run) queueing.Topology {
	return queueing.Topology{Clients: r.Int("relays"), Workers: 5 * r.Int("relays"), Range: knownWorkers}
}

func config(r *scenario.Run, limit string) queueing.Config {
	return queueing.Config{
		Topology: topology(r), Seed: r.Seed(), Policy: policy.Ringway("ringway", selection.DefaultConfig()),
		Callers: &queueing.Callers{Timeout: r.Duration("timeout"), Attempts: 1, Gate: gates(limit, knownWorkers)},
		// The services queue without limit, so only relays refuse requests.
		QueueBound: 1 << 30,
	}
}

// overloaded runs a fleet with more requests than the capacity for some time.
func (o *outcome) overloaded(r *scenario.Run, limit string) error {
	from, to := begins, begins+r.Duration("lasts")
	cfg := config(r, limit)
	cfg.Load = r.Float("before")
	cfg.Scenario = queueing.Scenario{
		Name: "overload", End: at(to + after), Rush: queueing.Rush{From: at(from), To: at(to), Factor: r.Float("overload") / r.Float("before")},
	}
	result, err := queueing.Run(cfg)
	if err != nil {
		return err
	}
	o.judge(result.Seconds, span{int(from.Seconds()), int(to.Seconds())}, topology(r).Capacity())
	return nil
}

// span is the time of an overload, in seconds of the run.
type span struct{ from, to int }

func (o *outcome) judge(seconds []queueing.Second, overload span, capacity float64) {
	o.seconds, o.goodput, o.mean, o.normal = seconds, math.Inf(1), 0, 0
	for _, s := range seconds[overload.from+settled : overload.to] {
		o.goodput = min(o.goodput, float64(s.Served)/capacity)
		o.mean += float64(s.Served) / capacity / float64(overload.to-overload.from-settled)
	}
	last := len(seconds) - 1 // has no arrivals, only events after the last arrival
	for s := last - 1; s >= overload.to; s-- {
		if float64(seconds[s].Served) < enough*float64(seconds[s].Requests) {
			o.normal = float64(s + 1 - overload.to)
			break
		}
	}
}

// busy runs a fleet just below its capacity: a fifth of the workers is slow, there are bursts,
// one worker joins, one is 10 times slower for 3 s, and one fails.
func (o *outcome) busy(r *scenario.Run, limit string) error {
	const every, long = 2 * time.Second, 200 * time.Millisecond
	burst := r.Float("burst")
	cfg := config(r, limit)
	// Load is the load between the bursts.
	cfg.Load = r.Float("busy") / (1 + (burst-1)*long.Seconds()/every.Seconds())
	cfg.Scenario = queueing.Scenario{
		Name: "busy", SlowShare: 0.2, SlowBy: 3, End: at(r.Duration("busy-for")),
		Rush: queueing.Rush{From: at(time.Second), To: at(time.Second + long), Factor: burst, Every: at(every)},
		Join: at(8 * time.Second),
	}
	cfg.Script = []queueing.Step{
		{At: at(11 * time.Second), Do: func(f *queueing.Fleet) { f.Turn(1, queueing.Turn{Slow: 10}) }},
		{At: at(14 * time.Second), Do: func(f *queueing.Fleet) { f.Turn(1, queueing.Turn{Slow: 1}) }},
		{At: at(16 * time.Second), Do: func(f *queueing.Fleet) { f.Turn(2, queueing.Turn{Slow: 1, Failing: true}) }},
	}
	result, err := queueing.Run(cfg)
	if err != nil {
		return err
	}
	requests, served, turned := 0, 0, 0
	for _, s := range result.Seconds {
		requests += s.Requests
		served += s.Served
		turned += s.Refused
	}
	o.refused = float64(turned) / float64(requests)
	o.late = 1 - float64(served)/float64(requests)
	o.p99 = result.Percentile(99)
	return nil
}
