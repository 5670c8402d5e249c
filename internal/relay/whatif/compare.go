package whatif

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/api"
)

// maxConnections bounds the connections of each side: with 5 million, a comparison takes some
// seconds and a few hundred megabytes at most.
const maxConnections = 5_000_000

// Compare plans services now and after a change. It stops between two services when ctx ends.
func Compare(ctx context.Context, services []Service, c Change) (*api.PlanChange, error) {
	then := make([]affinity.PlanConfig, len(services))
	var before, after size
	for i, s := range services {
		var err error
		if then[i], err = c.apply(s); err != nil {
			return nil, fmt.Errorf("what-if: service %q: %w", s.Plan.Service, err)
		}
		before.add(s.Plan)
		after.add(then[i])
	}
	if err := before.check("now"); err != nil {
		return nil, err
	}
	if err := after.check("after the change"); err != nil {
		return nil, err
	}
	d := difference{now: newSide(), then: newSide(), opened: map[string]int{}}
	for i, s := range services {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("what-if: stopped after %d of %d services: %w", i, len(services), err)
		}
		if err := d.add(s.Plan, then[i]); err != nil {
			return nil, err
		}
	}
	a := d.answer()
	a.Ignored = c.ignored(services)
	return a, nil
}

// size is what a comparison costs.
type size struct{ relays, workers, connections int }

func (s *size) add(cfg affinity.PlanConfig) {
	relays, workers, minimums := len(cfg.Relays), len(cfg.Workers), cfg.WithDefaults().Minimums
	perWorker := minimums.PeersPerWorker
	if cfg.WholeRange {
		perWorker = max(perWorker, cfg.Serving(relays, 0))
	}
	s.relays = max(s.relays, relays)
	s.workers += workers
	s.connections += min(relays*workers, max(perWorker*workers, minimums.PeersPerRelay*relays))
}

func (s size) check(when string) error {
	for _, limit := range []struct {
		n, most int
		what    string
	}{{s.relays, MaxRelays, "relays"}, {s.workers, MaxWorkers, "workers of all services"}, {s.connections, maxConnections, "connections"}} {
		if limit.n > limit.most {
			return fmt.Errorf("what-if: %d %s %s: at most %d are compared: ask about one service, or a smaller change", limit.n, limit.what, when, limit.most)
		}
	}
	return nil
}

// difference adds up what a change does to services.
type difference struct {
	now, then      side
	opened         map[string]int // by relay
	closed, counts int
}

// side is the fleet before or after the change.
type side struct {
	api.PlanFigures
	relays    map[string]int // connections by relay
	hops      float64        // sum over the services
	serving   int            // relays, sum over the services
	fallbacks []string
}

func newSide() side {
	s := side{relays: map[string]int{}}
	s.LeastLoaded = math.Inf(1)
	return s
}

func (d *difference) add(now, then affinity.PlanConfig) error {
	before, err := d.now.add(now)
	if err != nil {
		return err
	}
	after, err := d.then.add(then)
	if err != nil {
		return err
	}
	d.counts++
	// linked has, for each worker, the last relay of the present plan that connects to it.
	linked := make(map[string]int, len(now.Workers))
	var row []affinity.Assignment
	kept := 0
	for i, relay := range after.Affine() {
		if index, ok := before.Index(relay); ok {
			if row, err = before.AppendAssignments(row[:0], index); err != nil {
				return err
			}
			for _, a := range row {
				linked[a.Worker] = i + 1
			}
		}
		if row, err = after.AppendAssignments(row[:0], i); err != nil {
			return err
		}
		for _, a := range row {
			if linked[a.Worker] == i+1 {
				kept++
			} else {
				d.opened[relay]++
			}
		}
	}
	d.closed += before.Coverage().Connections - kept
	return nil
}

// add makes the plan of a service and counts it.
func (s *side) add(cfg affinity.PlanConfig) (*affinity.Plan, error) {
	plan, err := affinity.NewPlan(cfg)
	if err != nil {
		return nil, fmt.Errorf("what-if: %w", err)
	}
	used := cfg.WithDefaults()
	s.Strategy, s.IndexSource = used.Strategy, used.IndexSource
	s.PeersPerWorker, s.PeersPerRelay = used.Minimums.PeersPerWorker, used.Minimums.PeersPerRelay
	if text := plan.Fallback(); text != "" {
		s.fallbacks = append(s.fallbacks, plan.Service()+": "+text)
	}
	for _, r := range cfg.Relays {
		s.relays[r.ID] += 0 // one that serves no service counts, too
	}
	s.Workers += len(cfg.Workers)
	serving := plan.Affine()
	s.serving += len(serving)
	s.hops += 1 - float64(len(serving))/float64(len(cfg.Relays))
	var row []affinity.Assignment
	for i, relay := range serving {
		if row, err = plan.AppendAssignments(row[:0], i); err != nil {
			return nil, err
		}
		s.relays[relay] += len(row)
		s.Connections += len(row)
	}
	loads := plan.Loads()
	s.LeastLoaded, s.MostLoaded = min(s.LeastLoaded, slices.Min(loads)), max(s.MostLoaded, slices.Max(loads))
	return plan, nil
}

func (d *difference) answer() *api.PlanChange {
	a := &api.PlanChange{Services: d.counts, Closed: d.closed}
	for _, relay := range slices.Sorted(maps.Keys(d.opened)) {
		n := d.opened[relay]
		a.Opened += n
		if n > a.MostOpened {
			a.MostOpened, a.MostOpenedBy = n, relay
		}
	}
	a.Now, a.Then = d.now.figures(d.counts), d.then.figures(d.counts)
	return a
}

func (s *side) figures(services int) api.PlanFigures {
	f := s.PlanFigures
	f.Relays = len(s.relays)
	if services == 0 {
		f.LeastLoaded = 0
		return f
	}
	f.RelaysPerService, f.HopShare = float64(s.serving)/float64(services), s.hops/float64(services)
	if len(s.fallbacks) > 0 {
		f.Fallback = s.fallbacks[0]
	}
	counts := slices.Collect(maps.Values(s.relays))
	f.WorkersPerRelay = api.MinMax{Min: slices.Min(counts), Max: slices.Max(counts)}
	f.MeanWorkersPerRelay = float64(s.Connections) / float64(len(counts))
	return f
}
