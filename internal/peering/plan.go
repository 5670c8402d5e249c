package peering

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/ring"
)

// Config holds the limits of a [Table]. Zero fields mean the defaults.
type Config struct {
	// DrainDelay is how long a connection stays open after the last service stopped
	// needing it. It must exceed the time in which all relays learn of a change;
	// otherwise a worker has too few relays in between. Default 30 s; negative closes
	// immediately.
	DrainDelay time.Duration
	// MaxOpening limits how many connections are being opened at one time, so that a
	// deploy of a thousand workers does not cause a burst of handshakes. Default 16.
	MaxOpening int
	// RetryDelay is the wait after the first failed attempt to open a connection; it
	// doubles up to MaxRetryDelay. Defaults 1 s and 30 s.
	RetryDelay, MaxRetryDelay time.Duration
}

func (c Config) complete() (Config, error) {
	var problems []error
	if c.MaxOpening < 0 {
		problems = append(problems, fmt.Errorf("peering: MaxOpening %d is negative: give 0 for the default of 16, or more", c.MaxOpening))
	}
	if c.RetryDelay < 0 || c.MaxRetryDelay < 0 {
		problems = append(problems, fmt.Errorf("peering: retry delays %v and %v: want none negative, 0 for the defaults of 1s and 30s", c.RetryDelay, c.MaxRetryDelay))
	}
	c.DrainDelay = max(0, cmp.Or(c.DrainDelay, 30*time.Second))
	c.MaxOpening = cmp.Or(c.MaxOpening, 16)
	c.RetryDelay = cmp.Or(c.RetryDelay, time.Second)
	c.MaxRetryDelay = max(c.RetryDelay, cmp.Or(c.MaxRetryDelay, 30*time.Second))
	return c, errors.Join(problems...)
}

// Absent are vanished members whose grace has not ended, longest gone first; see [Grace].
type Absent struct {
	Relays  []affinity.Relay
	Workers []affinity.Worker
}

// Plan plans with the members of cfg and with as many absent members as do no harm: every
// present worker keeps all but one of its relays, of which one sends to it if any did, and every
// present relay keeps its minimum of workers. If too many members are absent, the longest gone are left out
// first. All relays that know the same members compute the same plan.
func Plan(cfg affinity.PlanConfig, absent Absent) (*affinity.Plan, error) {
	if len(cfg.Relays) == 0 || len(cfg.Workers) == 0 {
		return affinity.NewPlan(cfg) // returns ErrNoRelays or ErrNoWorkers
	}
	for {
		plan, err := affinity.NewPlan(with(cfg, absent))
		if err != nil || len(absent.Relays)+len(absent.Workers) == 0 || harmless(plan, cfg, absent) {
			return plan, err
		}
		// Halve, so that the loss of a datacenter does not cost one plan per member.
		absent.Relays = absent.Relays[(len(absent.Relays)+1)/2:]
		absent.Workers = absent.Workers[(len(absent.Workers)+1)/2:]
	}
}

// with adds absent members where they were, so that the previous plan is of use.
func with(cfg affinity.PlanConfig, absent Absent) affinity.PlanConfig {
	if len(absent.Relays) > 0 {
		cfg.Relays = append(slices.Clone(cfg.Relays), absent.Relays...)
		slices.SortFunc(cfg.Relays, func(a, b affinity.Relay) int { return strings.Compare(a.ID, b.ID) })
	}
	switch {
	case len(absent.Workers) == 0:
	case cfg.WorkersOrdered:
		cfg.Workers = merge(cfg.Service, cfg.Workers, absent.Workers)
	default:
		cfg.Workers = append(slices.Clone(cfg.Workers), absent.Workers...)
	}
	return cfg
}

// merge adds absent workers to workers in ring order, and keeps the order.
func merge(service string, workers, absent []affinity.Worker) []affinity.Worker {
	byID := make(map[string]affinity.Worker, len(absent))
	ids := make([]string, len(absent))
	for i, w := range absent {
		ids[i], byID[w.ID] = w.ID, w
	}
	out := make([]affinity.Worker, 0, len(workers)+len(absent))
	for _, id := range ring.Order(service, ids) {
		n := sort.Search(len(workers), func(i int) bool { return !ring.IsOrdered(service, []string{workers[i].ID, id}) })
		out = append(append(out, workers[:n]...), byID[id])
		workers = workers[n:]
	}
	return append(out, workers...)
}

// harmless reports whether the present members have enough connections to each other in a
// plan that includes the absent members.
func harmless(plan *affinity.Plan, cfg affinity.PlanConfig, absent Absent) bool {
	goneRelays, goneWorkers := map[string]bool{}, map[string]bool{}
	for _, r := range absent.Relays {
		goneRelays[r.ID] = true
	}
	for _, w := range absent.Workers {
		goneWorkers[w.ID] = true
	}
	enough := min(plan.Minimums().PeersPerRelay, len(cfg.Workers))
	lost := map[string]bool{} // workers of which one relay is absent
	// idle are workers to which an absent relay sends. A relay of another zone may have them as
	// standbys only, with the weight 0.
	idle := map[string]bool{}
	var row []affinity.Assignment
	for i, relay := range plan.Affine() {
		if !goneRelays[relay] && len(goneWorkers)+enough <= size(plan, i) {
			continue // it has enough workers even if all that are absent are its own
		}
		row, _ = plan.AppendAssignments(row[:0], i) // i is an index of the plan
		there := 0
		for _, a := range row {
			if goneWorkers[a.Worker] {
				continue
			}
			there++
			if goneRelays[relay] {
				if lost[a.Worker] {
					return false
				}
				lost[a.Worker] = true
				if a.Weight > 0 {
					idle[a.Worker] = true
				}
			}
		}
		if !goneRelays[relay] && there < min(enough, len(row)) {
			return false
		}
	}
	for i, relay := range plan.Affine() {
		if len(idle) == 0 {
			break
		}
		if goneRelays[relay] {
			continue
		}
		row, _ = plan.AppendAssignments(row[:0], i)
		for _, a := range row {
			if a.Weight > 0 {
				delete(idle, a.Worker)
			}
		}
	}
	return len(idle) == 0
}

// size returns how many workers the relay at index connects to, 0 if that is not known without the
// whole row.
func size(plan *affinity.Plan, index int) (n int) {
	ranges, _ := plan.Ranges(index) // it is an index of the plan
	for _, r := range ranges {
		n += r.Len()
	}
	return n
}
