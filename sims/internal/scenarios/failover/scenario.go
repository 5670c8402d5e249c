// Package failover simulates the loss of many members at once: a datacenter, a region, a
// rack.
//
// The scenario has three parts. Plans of package affinity for a fleet that loses whole places
// show which members take over and which connections move. Traffic of relays with the real
// balancer, whose near workers fail or are lost, shows how much traffic goes to the region and
// beyond, and when the traffic returns. The loss of workers with adjacent addresses shows
// which relays are affected.
//
//	scenario.go  settings and promises
//	plans.go     loss of a datacenter or a region
//	traffic.go   traffic moves to other tiers and returns
//	adjacent.go  loss of a rack
package failover

import (
	"time"

	"github.com/ringway/ringway/selection"
	"github.com/ringway/ringway/sims/internal/scenario"
)

// The promises, by name.
const (
	covered   = "relays of a worker while a place is lost"
	busy      = "workers of a relay while a place is lost"
	untouched = "connections opened in the region that lost nothing"
	spread    = "worst relay's loss, adjacent workers lost"
	staysNear = "share of the traffic that stays near, off what the healthy can take"
	failing   = "share of the attempts that fail, 10 s after something happened"
	recovers  = "time from the end of it until the traffic is near again"
)

// subject is the code under test; tests replace it with broken code.
type subject struct {
	// homeOnly relays use only the workers of their own datacenter.
	homeOnly bool
	ranges   rangesOf
}

// New returns the scenario.
func New() scenario.Scenario { return with(subject{ranges: hashed}) }

func with(s subject) scenario.Scenario {
	normal := selection.DefaultConfig()
	return scenario.Scenario{
		Name: "failover",
		Asks: "What happens when a datacenter, a region or a rack is lost, and when it is back?",
		Settings: []scenario.Setting{
			{Name: "relays", Help: "relays of each of 4 datacenters, in the plans", Default: 6, Min: 3, Max: 100},
			{Name: "workers", Help: "workers of each of them", Default: 60, Min: 3, Max: 5000},
			{Name: "places", Help: "members announce their datacenter and region", Default: true},
			{Name: "adjacent-relays", Help: "relays, where adjacent workers are lost", Default: 50, Min: 3, Max: 1000},
			{Name: "adjacent-workers", Help: "workers of them", Default: 1000, Min: 10, Max: 20_000},
			{Name: "adjacent-share", Help: "share of the workers that is lost", Default: 0.1, Min: 0.01, Max: 0.9},
			{Name: "load", Help: "arrivals ÷ capacity of a datacenter, for the traffic", Default: 0.5, Min: 0.05, Max: 0.95},
			{Name: "tiers", Help: "the balancer knows how far away a worker is", Default: true},
			{Name: "overprovisioning", Help: "times its fair share that a healthy worker may be loaded before traffic goes farther", Default: normal.Overprovisioning, Min: 1.0, Max: 100.0},
			{Name: "consecutive-failures", Help: "failures in a row that are allowed", Default: normal.ConsecutiveFailures, Min: 1, Max: 1_000_000},
			{Name: "error-rate-threshold", Help: "share of failures above which a worker is evicted", Default: normal.ErrorRateThreshold, Min: 1e-6, Max: 0.999},
			{Name: "max-eviction", Help: "the longest eviction", Default: normal.MaxEviction, Min: time.Second, Max: time.Hour},
			{Name: "after", Help: "how long the traffic is watched afterwards", Default: 45 * time.Second, Min: 10 * time.Second, Max: 10 * time.Minute},
		},
		Promises: []scenario.Promise{
			{Name: covered, Relation: scenario.AtLeast, Bound: 3, Unit: "relays", Why: "relays of the region, then any, fill up the number"},
			{Name: busy, Relation: scenario.AtLeast, Bound: 3, Unit: "workers", Why: "a relay without workers of its own takes those of the region, then any"},
			{Name: untouched, Relation: scenario.AtMost, Bound: 0, Unit: "connections", Why: "a datacenter that has enough of both sees no connection to another"},
			{Name: spread, Relation: scenario.AtMost, Bound: 0.3, Why: "on average over the places; a tenth lost is a tenth of each range, and chance"},
			{Name: staysNear, Relation: scenario.AtMost, Bound: 0.1, Why: "healthy share times overprovisioning, all of it at most"},
			{Name: failing, Relation: scenario.AtMost, Bound: 0.02, Why: "an evicted worker is tried from time to time"},
			{Name: recovers, Relation: scenario.AtMost, Bound: 20, Unit: "s", Why: "the running eviction, and the ramp after it"},
		},
		Takes: time.Second, TakesQuick: time.Second,
		Run: func(r *scenario.Run) error {
			for _, part := range []func(*scenario.Run, subject) error{plans, adjacent} {
				if err := part(r, s); err != nil {
					return err
				}
			}
			return traffic(r)
		},
	}
}
