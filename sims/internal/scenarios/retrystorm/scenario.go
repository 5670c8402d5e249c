// Package retrystorm measures the effect of retries on a fleet with more requests than its
// capacity: with and without a retry budget, with and without a limit on the requests in
// flight at a relay.
//
// Callers wait a limited time for an answer and then retry; the worker is not notified and
// still serves the old attempt. A rush of some seconds fills the queues. When every answer
// comes too late, all work is wasted and every request is sent several times. The retries
// keep the queues full, so the overload continues after the rush. A budget limits the number
// of retries. A limit on requests in flight keeps the queues short, so that answers are in
// time.
//
// The balancer and the budgets are the real packages; see package queueing for the model.
//
//	scenario.go  settings and promises
//	storm.go     the four cases and their results
package retrystorm

import (
	"time"

	"github.com/ringway/ringway/sims/internal/scenario"
)

// The promises, by name.
const (
	goodput   = "requests answered in time during the rush ÷ what the workers can serve"
	recovers  = "time from the end of the rush until all requests are answered in time"
	amplified = "attempts ÷ requests during the rush"
)

// New returns the scenario.
func New() scenario.Scenario {
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
			{Name: goodput, Relation: scenario.AtLeast, Bound: 0.9, Why: "a worker that serves only requests in time serves at full capacity"},
			{Name: recovers, Relation: scenario.AtMost, Bound: 3, Unit: "s", Why: "the requests in flight are less than a second of work"},
			{Name: amplified, Relation: scenario.AtMost, Bound: 1.3, Why: "a fifth of the requests, and what the budgets had saved up"},
		},
		Takes: 2 * time.Second, TakesQuick: time.Second,
		Run: run,
	}
}
