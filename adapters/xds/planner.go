package xds

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/peering"
	"github.com/ringway/ringway/internal/publish"
	"github.com/ringway/ringway/membership"
)

// world is what the planner knows about members and offers; *advertise.View by viewed.
type world interface {
	// Members is nil until the first snapshot has arrived.
	Members() *membership.Snapshot
	Settled() bool
	// offers returns the endpoints of a service in ring order, and a value that is the same
	// for as long as they are.
	offers(service string) (endpoints []*advertise.Endpoint, version any)
}

type viewed struct{ *advertise.View }

func (v viewed) offers(service string) ([]*advertise.Endpoint, any) {
	e := v.Endpoints(service)
	return slices.Collect(e.All()), e
}

// planner makes the plans and publishes them. One goroutine owns it.
type planner struct {
	cfg     Config
	secured bool // only endpoints with mutual TLS are sent
	clients *clients
	metrics *metrics
	plans   publish.Value[map[string]*affinity.Plan]

	world    world
	services map[string]*service
}

// service is the state of a service from plan to plan.
type service struct {
	clients   *peering.Grace[affinity.Relay]
	workers   *peering.Grace[affinity.Worker]
	present   []affinity.Relay // clients with a stream, or all of the fixed list
	absent    []affinity.Relay // clients that keep their places
	graceOver time.Time        // of a client or a worker, whichever is first
	version   any
	endpoints []*advertise.Endpoint
	degraded  bool
	plan      *affinity.Plan
	leftOut   map[string]string
}

func newPlanner(cfg Config, secured bool, c *clients, m *metrics) *planner {
	return &planner{cfg: cfg, secured: secured, clients: c, metrics: m, services: map[string]*service{}}
}

// run plans until ctx ends. joined returns the version of the snapshot with the members that
// this node has joined, and false before that.
func (p *planner) run(ctx context.Context, worlds <-chan world, joined <-chan uint64) {
	gather := time.After(p.cfg.Gather)
	gathered, hasJoined, least := false, false, uint64(0)
	pacer, changed := publish.NewPacer(), false
	var over <-chan time.Time
	ready := false
	for {
		select {
		case <-ctx.Done():
			return
		case w, ok := <-worlds:
			if !ok {
				return
			}
			p.world, changed = w, true
		case least = <-joined:
			hasJoined, joined, changed = true, nil, true
		case <-gather:
			gathered, changed = true, true
		case <-p.clients.changed:
			changed = true
		case <-over:
			changed = true
		case <-pacer.C:
		}
		if !ready {
			// With only a part of the members, offers or clients, ranges would be wrong and
			// endpoints would be missing. Until then clients keep the endpoints that they have.
			ready = gathered && hasJoined && p.world != nil && p.world.Members() != nil && p.world.Members().Version() >= least && p.world.Settled()
			if !ready {
				continue
			}
			p.cfg.Logger.Info("members, offers and clients are known: sending endpoints")
		}
		if !changed || !pacer.May() {
			continue
		}
		pacer.Begin(planInterval)
		changed, over = false, publish.At(p.update(time.Now()))
	}
}

// update plans the services that changed and publishes the result. It returns when the next
// absent member loses its place, zero if there is none.
func (p *planner) update(now time.Time) (next time.Time) {
	subscribed, waiting := p.clients.subscriptions()
	connected := map[string]bool{}
	for name, list := range subscribed {
		for _, c := range list {
			connected[c.ID] = true
		}
		if p.services[name] == nil {
			p.services[name] = &service{
				clients: peering.NewGrace(p.cfg.Grace, func(r affinity.Relay) string { return r.ID }),
				workers: peering.NewGrace(p.cfg.Grace, func(w affinity.Worker) string { return w.ID }),
			}
		}
	}
	resources, absent := map[string]map[string]*endpoint.ClusterLoadAssignment{}, map[string]bool{}
	for name, s := range p.services {
		list := subscribed[name]
		if len(list) > 0 && len(p.cfg.Clients) > 0 {
			list = p.cfg.Clients
		}
		loads, err := p.plan(name, s, input{list, connected, waiting[name], now})
		if err != nil {
			// The previous endpoints stay: they are better than none.
			p.metrics.plans.WithLabelValues(planFailed).Inc()
			p.clients.lines.Log(slog.LevelError, "cannot plan a service; its endpoints stay", "service", name, "err", err)
		}
		for _, c := range slices.Concat(s.present, s.absent) {
			if !connected[c.ID] {
				absent[c.ID] = true
			}
		}
		if len(list)+len(s.absent) == 0 {
			delete(p.services, name)
			continue
		}
		resources[name] = loads
		if !s.graceOver.IsZero() && (next.IsZero() || s.graceOver.Before(next)) {
			next = s.graceOver
		}
	}
	if err := p.clients.publish(resources, absent); err != nil {
		p.cfg.Logger.Error("cannot encode endpoints", "err", err)
	}
	p.report()
	return next
}

// input is what a plan is made of in addition to the world.
type input struct {
	clients   []affinity.Relay // sorted by id
	connected map[string]bool
	waiting   bool // a connected client has no endpoints yet
	now       time.Time
}

// plan plans a service if it may have changed, and returns the endpoints of its clients.
func (p *planner) plan(name string, s *service, in input) (map[string]*endpoint.ClusterLoadAssignment, error) {
	offered, version := p.world.offers(name)
	degraded := p.world.Members().Degraded()
	absent, clientsOver := s.clients.Update(in.clients, in.now)
	same := slices.Equal(in.clients, s.present) && slices.Equal(absent, s.absent) && version == s.version
	graceOver := !s.graceOver.IsZero() && !in.now.Before(s.graceOver)
	if same && !graceOver && !in.waiting && !degraded && !s.degraded {
		return nil, nil
	}
	s.present, s.absent, s.version, s.degraded = in.clients, absent, version, degraded
	if degraded {
		offered = keepFailed(s.endpoints, offered, p.world.Members())
	}
	s.endpoints = offered
	of := &planned{endpoints: make(map[string]*advertise.Endpoint, len(offered)), rules: rules{p.secured, mostlyTCP(offered)}}
	var ready, draining []affinity.Worker
	for _, e := range offered {
		of.endpoints[e.NodeID] = e
		w := affinity.Worker{ID: e.NodeID, Place: affinity.Place{Datacenter: e.Datacenter, Region: e.Region}, Weight: int(e.Weight)}
		if e.State == advertise.Draining {
			draining = append(draining, w)
		} else {
			ready = append(ready, w)
		}
	}
	vanished, workersOver := s.workers.Update(ready, in.now)
	s.graceOver = clientsOver
	if s.graceOver.IsZero() || !workersOver.IsZero() && workersOver.Before(s.graceOver) {
		s.graceOver = workersOver
	}
	cfg := p.cfg.Plan
	// An Envoy without a stream goes on with the endpoints that it has, so all of these clients
	// keep their places. Vanished relays keep theirs only as far as every worker still has its
	// connections.
	cfg.Service, cfg.Relays, cfg.WorkersOrdered = name, slices.Concat(in.clients, absent), false
	cfg.RelaysPerService = max(len(cfg.Relays), cfg.WithDefaults().Minimums.PeersPerWorker)
	cfg.Previous = s.plan
	if len(in.clients) > 0 {
		if err := of.makePlans(cfg, workers{ready, draining, vanished}); err != nil {
			return nil, err
		}
	}
	if now, before := of.plan, s.plan; now != nil && now.Fallback() != "" && (before == nil || before.Fallback() == "") {
		p.cfg.Logger.Warn("service is planned by projection instead", "service", name, "strategy", p.cfg.Plan.Strategy, "reason", now.Fallback())
	}
	s.plan = of.plan
	return p.loads(name, s, loadsOf{of, in.connected})
}

// keepFailed adds the endpoints of before whose worker failed to those that are offered now.
// While a snapshot is degraded, this node may be the one that is cut off.
func keepFailed(before, now []*advertise.Endpoint, s *membership.Snapshot) []*advertise.Endpoint {
	there := map[string]bool{}
	for _, e := range now {
		there[e.NodeID] = true
	}
	for _, e := range before {
		if d, gone := s.Departed(e.NodeID); gone && d.Reason == membership.Failed && !there[e.NodeID] {
			now = append(now, e)
		}
	}
	return now
}

// workers are the workers of a service by state. vanished ones keep their places, and a
// worker that drains may be one of them.
type workers struct{ ready, draining, vanished []affinity.Worker }

// makePlans makes the plans of a service that has clients.
func (p *planned) makePlans(cfg affinity.PlanConfig, of workers) (err error) {
	if len(of.ready) > 0 {
		cfg.Workers = of.ready
		if p.plan, err = peering.Plan(cfg, peering.Absent{Workers: of.vanished}); err != nil {
			return err
		}
	}
	if len(of.draining) > 0 {
		cfg.Workers = slices.Concat(of.ready, of.draining)
		p.withDraining, err = peering.Plan(cfg, peering.Absent{Workers: slices.DeleteFunc(slices.Clone(of.vanished), func(w affinity.Worker) bool {
			return p.endpoints[w.ID] != nil
		})})
	}
	return err
}

// loadsOf is a service for which the endpoints of the connected clients are needed.
type loadsOf struct {
	*planned
	connected map[string]bool
}

// loads returns the endpoints of the connected clients of a service, and keeps which endpoints
// are left out, and why.
func (p *planner) loads(name string, s *service, of loadsOf) (map[string]*endpoint.ClusterLoadAssignment, error) {
	out, leftOut := map[string]*endpoint.ClusterLoadAssignment{}, map[string]string{}
	for _, c := range s.present {
		if !of.connected[c.ID] {
			continue
		}
		sorted, without, err := of.rangeOf(c.ID)
		if err != nil {
			return nil, err
		}
		maps.Copy(leftOut, without)
		out[c.ID] = loadAssignment(name, sorted)
	}
	for worker, why := range leftOut {
		if s.leftOut[worker] != why {
			p.clients.lines.Log(slog.LevelWarn, "an endpoint is not sent to clients", "service", name, "worker", worker, "addr", of.endpoints[worker].Address, "reason", why)
		}
	}
	s.leftOut = leftOut
	p.metrics.plans.WithLabelValues(planOK).Inc()
	return out, nil
}

// report publishes the plans and counts the endpoints that are left out.
func (p *planner) report() {
	plans, counts := make(map[string]*affinity.Plan, len(p.services)), map[string]int{}
	for name, s := range p.services {
		if s.plan != nil {
			plans[name] = s.plan
		}
		for _, why := range s.leftOut {
			counts[why]++
		}
	}
	p.plans.Store(&plans)
	for _, why := range leftOutReasons {
		p.metrics.leftOut.WithLabelValues(why).Set(float64(counts[why]))
	}
}
