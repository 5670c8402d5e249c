// Package overload simulates a fleet with several times more requests than its capacity:
// without a limit on requests in flight, with the published limits of other systems, and
// with the limit of package internal/relay/overload.
//
// Workers queue without limit and callers wait for a limited time. Without a limit in flight
// the queues grow until every answer comes too late, and all work of the fleet is wasted. A
// limit must work without a setting for the fleet, and must not refuse requests while the
// load is below the capacity, even if the load is uneven.
//
//	scenario.go  settings and promises
//	limits.go    the limits
//	runs.go      the overload, and a high load below the capacity
package overload

import (
	"time"

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
