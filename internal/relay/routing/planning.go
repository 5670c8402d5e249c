package routing

import (
	"cmp"
	"log/slog"
	"slices"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/affinity/peering"
	"github.com/ringway/ringway/selection/strategy"
)

// planning is what the router remembers of a service from plan to plan.
type planning struct {
	grace     *peering.Grace[versioned]
	graceOver time.Time
	linked    []linked // in the range or within slack of it
	chosen             // how its endpoints are picked
}

// versioned is a worker and the version of its endpoint.
type versioned struct {
	affinity.Worker
	version string
}

// linked is a worker and where it is connected to.
type linked struct {
	node string
	id   string    // of the instance
	keys []poolKey // one more for upgrades where that needs another
}

func newPlanning(grace time.Duration) *planning {
	return &planning{grace: peering.NewGrace(grace, func(w versioned) string { return w.ID })}
}

// route brings one service up to date.
func (r *Router) route(s *Service, relaysChanged bool, now time.Time) error {
	old, planned := s.Route(), r.plans[s.Name]
	offered := r.view.Endpoints(s.Name)
	var kept []*advertise.Endpoint
	if r.snapshot.Degraded() {
		kept = failedEndpoints(old.Endpoints, offered, r.snapshot)
	}
	// The catalogue keeps the endpoints of a service that did not change.
	graceOver := !planned.graceOver.IsZero() && !now.Before(planned.graceOver)
	if !relaysChanged && !graceOver && old.Plan != nil && old.offered == offered && len(kept) == 0 {
		return nil
	}
	endpoints := slices.Collect(offered.All())
	if len(kept) > 0 {
		endpoints, offered = inRingOrder(s.Name, append(endpoints, kept...)), nil
	}
	next := &Route{Index: -1, Endpoints: endpoints, At: now, offered: offered}
	ready := make(map[string]*advertise.Endpoint, len(endpoints))
	var present []versioned
	for _, e := range endpoints {
		if e.State == advertise.Ready {
			present = append(present, versioned{
				affinity.Worker{ID: e.NodeID, Place: affinity.Place{Datacenter: e.Datacenter, Region: e.Region}, Weight: e.Weight}, e.Version,
			})
			ready[e.NodeID] = e
		}
	}
	next.Votes = CountVotes(endpoints, r.cfg.Plans.MaxRelaysPerService)
	relaysPerService := cmp.Or(winner(next.Votes.Relays), r.cfg.Plans.RelaysPerService)
	spec, origin := r.choosing.decide(s, &planned.chosen, endpoints, next.Votes)
	minimums := r.choosing.minimums(s.Name, spec, len(r.fleet.relays)+len(r.fleet.absent))
	absent := peering.Absent{Relays: candidates(r.fleet.absent)}
	var vanished []versioned
	vanished, planned.graceOver = planned.grace.Update(present, now)
	if spec.Name == strategy.Slots {
		// All relays plan with the same workers. Judged by each range for itself, a relay
		// whose range has none of the highest version would use another.
		present, vanished = ofHighestVersion(present, vanished)
	}
	workers := unversioned(present)
	absent.Workers = unversioned(vanished)
	next.absentRelays = idSet(absent.Relays, func(r affinity.Relay) string { return r.ID })
	next.absentWorkers = idSet(absent.Workers, func(w affinity.Worker) string { return w.ID })
	if len(workers) > 0 && len(r.fleet.relays) > 0 {
		plan, err := peering.Plan(affinity.PlanConfig{
			Service: s.Name, Relays: candidates(r.fleet.relays), Workers: workers, WorkersOrdered: true, Skip: r.cfg.Plans.Skip[s.Name],
			RelaysPerService: relaysPerService, Minimums: minimums, PeersPerTier: r.cfg.Plans.PeersPerTier,
			IndexSource: r.cfg.Plans.IndexSource, Strategy: r.cfg.Plans.Strategy,
		}, absent)
		if err != nil {
			return err
		}
		next.Plan = plan
		if i, ok := plan.Index(r.cfg.Self); ok {
			next.Index = i
			if next.Range, err = r.targets(plan, i, ready, spec); err != nil {
				return err
			}
			next.MinEffective = leastEffective(plan, i)
		} else {
			next.Forward = r.peers(plan.Affine())
		}
	}
	if err := r.publish(s, next); err != nil {
		return err
	}
	if err := r.apply(s, spec, origin); err != nil {
		return err
	}
	r.want(s.Name, next, ready, now)
	r.updates.WithLabelValues(routeOK).Inc()
	r.tellOffers(s.Name, old.Endpoints, next.Endpoints)
	r.tell(s.Name, old, next)
	return nil
}

// ofHighestVersion are the workers of the highest version that is there.
func ofHighestVersion(present, vanished []versioned) (highest, gone []versioned) {
	if len(present) == 0 {
		return nil, nil
	}
	top := slices.MaxFunc(present, func(a, b versioned) int { return strategy.CompareVersions(a.version, b.version) })
	older := func(w versioned) bool { return strategy.CompareVersions(w.version, top.version) != 0 }
	return slices.DeleteFunc(present, older), slices.DeleteFunc(slices.Clone(vanished), older)
}

func unversioned(workers []versioned) []affinity.Worker {
	out := make([]affinity.Worker, len(workers))
	for i, w := range workers {
		out[i] = w.Worker
	}
	return out
}

func idSet[M any](members []M, id func(M) string) map[string]bool {
	out := make(map[string]bool, len(members))
	for _, m := range members {
		out[id(m)] = true
	}
	return out
}

// want asks for the connections of a route, and for those that lie within slack of
// its range to be kept.
func (r *Router) want(service string, route *Route, ready map[string]*advertise.Endpoint, now time.Time) {
	var in, near []poolKey
	var links []linked
	inRange := map[string]bool{}
	planned := r.plans[service]
	before := make(map[string]string, len(planned.linked))
	for _, l := range planned.linked {
		before[l.node] = l.id
	}
	for _, t := range route.Range {
		keys := t.keys()
		if id := before[t.Node]; id != "" && id != t.ID {
			// What failed with the last instance says nothing about this one.
			for _, key := range keys {
				r.links.table.Renewed(key, now)
			}
		}
		in = append(in, keys...)
		links = append(links, linked{t.Node, t.ID, keys})
		inRange[t.Node] = true
	}
	if route.Affine() && r.cfg.Links.Slack > 0 {
		for _, l := range planned.linked {
			e := ready[l.node]
			if e == nil || inRange[l.node] || endpointKey(e) != l.keys[0] {
				continue
			}
			if d := route.Plan.Distance(route.Index, l.node); d > 0 && d <= r.cfg.Links.Slack {
				near = append(near, l.keys...)
				links = append(links, l)
			}
		}
	}
	planned.linked = links
	r.links.table.Want(service, in, near, now)
}

// tellOffers logs the endpoints that come, go, and stop or begin to take new work.
func (r *Router) tellOffers(service string, before, after []*advertise.Endpoint) {
	was := make(map[string]*advertise.Endpoint, len(before))
	for _, e := range before {
		was[e.NodeID] = e
	}
	for _, e := range after {
		old := was[e.NodeID]
		delete(was, e.NodeID)
		switch {
		case old == nil || old.Address != e.Address:
			r.lines.Log(slog.LevelInfo, "offer appeared", "service", service, "worker", e.NodeID, "addr", e.Address, "state", e.State)
		case old.State != e.State:
			r.lines.Log(slog.LevelInfo, "offer is "+string(e.State), "service", service, "worker", e.NodeID, "addr", e.Address)
		}
	}
	for _, e := range before {
		if was[e.NodeID] != nil {
			r.lines.Log(slog.LevelInfo, "offer is gone", "service", service, "worker", e.NodeID, "addr", e.Address)
		}
	}
}

// tell logs what an operator should know of a new route.
func (r *Router) tell(service string, old, next *Route) {
	if next.Plan == nil {
		return
	}
	role := "forwarding"
	if next.Affine() {
		role = "affine"
	}
	switch {
	case old.Plan == nil: // with thousands of services, a start would be nothing but this
		r.cfg.Logger.Debug("service found", "service", service, "role", role, "endpoints", len(next.Endpoints))
	case old.Affine() != next.Affine():
		r.cfg.Logger.Info("role for a service changed", "service", service, "role", role, "endpoints", len(next.Endpoints))
	}
	if reason := next.Plan.Fallback(); reason != "" && (old.Plan == nil || old.Plan.Fallback() == "") {
		r.cfg.Logger.Warn("service is planned by projection instead", "service", service, "strategy", r.cfg.Plans.Strategy, "reason", reason)
	}
}
