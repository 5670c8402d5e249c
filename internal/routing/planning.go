package routing

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/peering"
	"github.com/ringway/ringway/internal/relaypool"
	"github.com/ringway/ringway/internal/strategy"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/ring"
)

// planning is the state of a service that the router keeps from plan to plan.
type planning struct {
	grace         *peering.Grace[versioned]
	graceOver     time.Time
	linked        []workerLinks // in the range or within slack of it
	slots         slotsSet      // with which the route was computed
	canary        Canary        // likewise
	failed        bool          // the last time that the route was computed
	strategyState               // how its endpoints are picked
}

// versioned is a worker with the version of its endpoint.
type versioned struct {
	affinity.Worker
	version string
}

// workerLinks is a worker with the keys of its connections.
type workerLinks struct {
	node string
	id   string    // of the instance
	keys []poolKey // one more for upgrades if these need a separate connection
}

// readyEndpoints are the endpoints of a service that a route can use. A map of them all would cost
// more than the rest of a route of thousands, which looks for few.
type readyEndpoints struct {
	offered *advertise.Endpoints           // of the catalogue
	kept    map[string]*advertise.Endpoint // in addition to these, by worker
	without map[*advertise.Endpoint]bool   // are left out
}

func (r *readyEndpoints) keep(endpoints []*advertise.Endpoint) {
	r.kept = make(map[string]*advertise.Endpoint, len(endpoints))
	for _, e := range endpoints {
		r.kept[e.NodeID] = e
	}
}

func (r *readyEndpoints) leaveOut(e *advertise.Endpoint) {
	if r.without == nil {
		r.without = map[*advertise.Endpoint]bool{}
	}
	r.without[e] = true
}

func (r *readyEndpoints) has(e *advertise.Endpoint) bool {
	return e.State == advertise.Ready && !r.without[e]
}

// of returns the endpoint of a worker, nil if it has none that can be used.
func (r *readyEndpoints) of(worker string) *advertise.Endpoint {
	e := r.kept[worker]
	if e == nil {
		e = r.offered.Of(worker)
	}
	if e == nil || !r.has(e) {
		return nil
	}
	return e
}

func newPlanning(grace time.Duration) *planning {
	return &planning{grace: peering.NewGrace(grace, func(w versioned) string { return w.ID })}
}

// route updates the route of one service if it may have changed.
func (r *Router) route(s *Service, relaysChanged bool, now time.Time) (computed bool, err error) {
	old, planned := s.Route(), r.plans[s.Name]
	offered := r.view.Endpoints(s.Name)
	var kept []*advertise.Endpoint
	if r.snapshot.Degraded() {
		kept = r.markDead(failedEndpoints(old.Endpoints, offered, r.snapshot))
	}
	// The catalogue keeps the endpoints of a service that did not change.
	graceOver := !planned.graceOver.IsZero() && !now.Before(planned.graceOver)
	slots, canary := r.slots.Load().forService(s.Name), r.canaryOf(s.Name)
	if !relaysChanged && !graceOver && !planned.failed && slots == planned.slots && canary == planned.canary && (old.Plan != nil || r.observes() && old.Affine()) && old.offered == offered && len(kept) == 0 {
		return false, nil
	}
	endpoints := slices.AppendSeq(make([]*advertise.Endpoint, 0, len(old.Endpoints)+1), offered.All())
	ready := &readyEndpoints{offered: offered}
	if len(kept) > 0 {
		endpoints, offered = inRingOrder(s.Name, append(endpoints, kept...)), nil
		ready.keep(kept)
	}
	next := &Route{Index: -1, Endpoints: endpoints, At: now, offered: offered}
	present := r.presentWorkers(next, ready)
	plans := r.agreement.inUse.plans
	next.TCP = mostlyTCP(endpoints)
	next.Votes = CountVotes(endpoints, plans.MaxRelaysPerService)
	next.Policy = r.strategies.policy(s.Name, &planned.strategyState, next.Votes)
	if len(present) == 0 {
		next.Policy.SessionCookie = old.Policy.SessionCookie // no worker is left that could advertise another one
	}
	relaysPerService := plans.RelaysPerService
	if asked := next.Votes.RelaysAsked(); asked > 0 {
		// A worker must not take away the connections that its service needs when a relay fails.
		relaysPerService = max(asked, plans.Minimums.PeersPerWorker)
	}
	spec, origin := r.strategies.decide(s, &planned.strategyState, endpoints, next.Votes)
	wholeRange, oneVersion := plans.needs(s.Name, next.Votes)
	absent := peering.Absent{Relays: candidates(r.fleet.absent, r.traffic.of[s.Name])}
	var vanished []versioned
	vanished, planned.graceOver = planned.grace.Update(present, now)
	if oneVersion {
		// All relays plan with the same workers. If each range decided separately, a relay
		// whose range lacks that version would use another version.
		next.Version = majorityVersion(present)
		present, vanished = ofVersion(next.Version, present), ofVersion(next.Version, vanished)
	}
	workers := unversioned(present)
	absent.Workers = unversioned(vanished)
	next.absentRelays = idSet(absent.Relays, func(r affinity.Relay) string { return r.ID })
	next.absentWorkers = idSet(absent.Workers, func(w affinity.Worker) string { return w.ID })
	switch {
	case r.observes() && len(workers) > 0:
		if next.Range, err = r.observed(next, workers, ready, spec); err != nil {
			return true, err
		}
		next.Index = 0
	case len(workers) > 0 && len(r.fleet.relays) > 0 && !r.observes():
		basis := plans.PlanConfig
		basis.Service, basis.Relays, basis.Skip, basis.RelaysPerService = s.Name, r.relaysFor(s.Name), plans.Skip[s.Name], relaysPerService
		basis.Workers, basis.WorkersOrdered, basis.WholeRange = workers, true, wholeRange
		next.Basis = basis
		basis.Previous = old.Plan
		plan, err := peering.Plan(basis, absent)
		if err != nil {
			return true, err
		}
		next.Plan, next.traffic = plan, r.trafficOf(plan)
		next.expected = expectations(plan, slices.Concat(basis.Relays, countedOf(plan, absent.Relays)))
		if i, ok := plan.Index(r.cfg.Self); ok {
			next.Index, next.share = i, next.shareOf(r.cfg.Self)
			assignments, err := plan.Assignments(i)
			if err != nil {
				return true, err
			}
			next.Range = r.targets(next, assignments, ready, spec)
			next.MinEffective = plan.Spacing(i)
			next.Elsewhere = slices.DeleteFunc(r.peers(plan.Affine()), func(p relaypool.Peer) bool { return r.cfg.Datacenter == "" || p.Datacenter == r.cfg.Datacenter })
		} else {
			next.Forward = r.peers(plan.Affine())
		}
	}
	r.splitCanary(next, s.Name, ready)
	planned.slots, planned.canary = slots, canary
	if err := r.publish(s, next); err != nil {
		return true, err
	}
	if err := r.apply(s, spec, origin); err != nil {
		return true, err
	}
	r.requestLinks(s.Name, next, ready, now)
	r.updates.WithLabelValues(routeOK).Inc()
	r.logOffers(s.Name, old.Endpoints, next.Endpoints)
	r.logRoute(s.Name, old, next)
	r.logCanary(s.Name, old, next)
	return true, nil
}

// presentWorkers returns the workers of a route that take requests. It leaves out endpoints at the
// address of a relay's listener.
func (r *Router) presentWorkers(next *Route, ready *readyEndpoints) []versioned {
	present := make([]versioned, 0, len(next.Endpoints))
	for _, e := range next.Endpoints {
		if e.State != advertise.Ready {
			continue
		}
		if id, ok := r.fleet.listener(e.Address); ok {
			r.leaveOut(next, e, fmt.Errorf("%s (%s): %w of relay %s", e.NodeID, e.Address, errListener, id))
			ready.leaveOut(e)
			continue
		}
		present = append(present, versioned{
			affinity.Worker{ID: e.NodeID, Place: affinity.Place{Datacenter: e.Datacenter, Region: e.Region}, Weight: int(e.Weight)}, e.Version,
		})
	}
	return present
}

// observes reports whether this member has no place in plans.
func (r *Router) observes() bool { return r.cfg.Role == identity.RoleObserver || r.fleet.outside }

// observed returns the range of an observer. Where all relays connect to all workers, so that
// they make the same choice, it also does.
func (r *Router) observed(route *Route, workers []affinity.Worker, ready *readyEndpoints, spec strategy.Spec) ([]*Target, error) {
	cfg := affinity.ObserverConfig{
		Service: route.Endpoints[0].Name, Observer: affinity.Relay{ID: r.cfg.Self, Place: affinity.Place{Datacenter: r.cfg.Datacenter, Region: r.cfg.Region}},
		Workers: workers, WorkersOrdered: true, Endpoints: r.cfg.Endpoints, PeersPerTier: r.agreement.inUse.plans.PeersPerTier,
	}
	if spec.NeedsWholeRange() {
		cfg.Endpoints = 0
	}
	assignments, err := affinity.ObserverRange(cfg)
	if err != nil {
		return nil, err
	}
	return r.targets(route, assignments, ready, spec), nil
}

// mostlyTCP reports whether more than half of the endpoints take TCP sessions. A majority
// decides, so that one worker cannot take a service away from the others.
func mostlyTCP(endpoints []*advertise.Endpoint) bool {
	tcp := 0
	for _, e := range endpoints {
		if e.Protocol == advertise.TCP {
			tcp++
		}
	}
	return 2*tcp > len(endpoints)
}

// majorityVersion returns the highest version that more than half of the workers have or exceed.
// A majority decides, as it does for Votes: one worker with a high version must not take the
// requests of all others. Workers that have vanished have no vote, because all workers of the
// version before may drain together.
func majorityVersion(present []versioned) string {
	workers := map[string]int{} // by version: there are few, and comparing them is slow
	for _, w := range present {
		workers[w.version]++
	}
	versions := slices.SortedFunc(maps.Keys(workers), func(a, b string) int {
		return cmp.Or(strategy.CompareVersions(b, a), strings.Compare(a, b))
	})
	voters := 0
	for _, version := range versions {
		if voters += workers[version]; 2*voters > len(present) {
			return version
		}
	}
	return ""
}

// ofVersion returns the workers of a version. Different texts can be the same version.
func ofVersion(version string, workers []versioned) (of []versioned) {
	for _, w := range workers {
		if strategy.CompareVersions(w.version, version) == 0 {
			of = append(of, w)
		}
	}
	return of
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

// requestLinks requests the connections of a route, and keeps those of workers within slack of its
// range.
func (r *Router) requestLinks(service string, route *Route, ready *readyEndpoints, now time.Time) {
	if r.cfg.PickOnly {
		return
	}
	var in, near []poolKey
	var links []workerLinks
	inRange := map[string]bool{}
	planned := r.plans[service]
	before := make(map[string]string, len(planned.linked))
	for _, l := range planned.linked {
		before[l.node] = l.id
	}
	for _, t := range route.Range {
		keys := t.keys()
		if id := before[t.Node]; id != "" && id != t.ID {
			// The failures of the previous instance do not apply to this one.
			for _, key := range keys {
				r.links.table.Renewed(key)
			}
		}
		in = append(in, keys...)
		links = append(links, workerLinks{t.Node, t.ID, keys})
		inRange[t.Node] = true
	}
	if route.Plan != nil && route.Affine() && r.cfg.Links.Slack > 0 {
		for _, l := range planned.linked {
			e := ready.of(l.node)
			if e == nil || inRange[l.node] || r.cfg.endpointKey(e) != l.keys[0] {
				continue
			}
			if route.Plan.Keeps(route.Index, l.node, r.cfg.Links.Slack) {
				near = append(near, l.keys...)
				links = append(links, l)
			}
		}
	}
	planned.linked = links
	r.links.table.Want(service, in, near, now)
}

// logOffers logs the endpoints that appear, vanish, or change their state.
func (r *Router) logOffers(service string, before, after []*advertise.Endpoint) {
	compareOffers(service, before, after, func(was, is *advertise.Endpoint) {
		switch {
		case is == nil:
			r.lines.Gather(slog.LevelInfo, "offer is gone", service+"/"+was.NodeID, "service", service, "worker", was.NodeID, "addr", was.Address)
		case was == nil || was.Address != is.Address:
			r.lines.Log(slog.LevelInfo, "offer appeared", "service", service, "worker", is.NodeID, "addr", is.Address, "state", is.State)
		case was.State != is.State:
			r.lines.Log(slog.LevelInfo, "offer is "+string(is.State), "service", service, "worker", is.NodeID, "addr", is.Address)
		}
	})
}

// compareOffers calls changed for each worker whose endpoint of a service is another one; was or is
// is nil if there is none. Both lists are in ring order, so they are merged. Views share the
// endpoints that did not change: most are skipped before their positions are compared.
func compareOffers(service string, before, after []*advertise.Endpoint, changed func(was, is *advertise.Endpoint)) {
	for seed := ring.Hash(service, 0); len(before) > 0 || len(after) > 0; {
		order := 0
		switch {
		case len(before) == 0:
			order = 1
		case len(after) == 0:
			order = -1
		case before[0] != after[0]:
			a, b := before[0].NodeID, after[0].NodeID
			order = cmp.Or(cmp.Compare(ring.Hash(a, seed), ring.Hash(b, seed)), strings.Compare(a, b))
		}
		switch {
		case order < 0:
			changed(before[0], nil)
			before = before[1:]
		case order > 0:
			changed(nil, after[0])
			after = after[1:]
		default:
			if before[0] != after[0] {
				changed(before[0], after[0])
			}
			before, after = before[1:], after[1:]
		}
	}
}

// logRoute logs the changes of a route that an operator needs to know.
func (r *Router) logRoute(service string, old, next *Route) {
	if next.Plan == nil {
		return
	}
	role := "forwarding"
	if next.Affine() {
		role = "affine"
	}
	switch {
	case old.Plan == nil: // with thousands of services, these lines would fill the log of a start
		r.cfg.Logger.Debug("service found", "service", service, "role", role, "endpoints", len(next.Endpoints))
	case old.Affine() != next.Affine():
		r.lines.Log(slog.LevelInfo, "role for a service changed", "service", service, "role", role, "endpoints", len(next.Endpoints))
	case next.OutOfReach && !old.OutOfReach && len(next.Elsewhere) > 0:
		r.lines.Log(slog.LevelWarn, "no worker of this zone is in reach: requests go to relays of other zones", "service", service, "workers", next.Unreachable)
	case old.OutOfReach && !next.OutOfReach && len(old.Elsewhere) > 0:
		r.lines.Log(slog.LevelInfo, "a worker of this zone is in reach again", "service", service, "workers", len(next.Range))
	}
	if reason := next.Plan.Fallback(); reason != "" && (old.Plan == nil || old.Plan.Fallback() == "") {
		r.lines.Log(slog.LevelWarn, "service is planned by projection instead", "service", service, "strategy", r.agreement.inUse.plans.Strategy, "reason", reason)
	}
}
