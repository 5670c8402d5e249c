// Package surge simulates thousands of allocators that take slots at the same time, based on
// old load reports.
//
// Relays use the real strategy slots and read loads from the real balancer: the last report of
// a worker plus the requests that the relay has sent since. Between two reports a relay does
// not see the requests of other relays, so all relays choose the workers with the lowest
// reported load: a herd. The size of the herd depends on the number of compared endpoints (K),
// not on the number of all endpoints; the jitter matters only if loads differ by a few slots.
//
//	fleet.go   relays, allocators, workers, and the time between two reports
//	storms.go  many allocators, report after report: K and jitter
//	cold.go    an empty pool with counted loads; a full worker
package surge

import (
	"fmt"
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
