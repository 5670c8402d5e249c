package relay

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/peering"
	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/relay/whatif"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/strategy"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/selection"
)

func (r *Relay) showPlan(w http.ResponseWriter, req *http.Request, s *routing.Service) {
	route := s.Route()
	if route.Plan == nil {
		process.WriteError(w, http.StatusServiceUnavailable, noPlan(s.Name))
		return
	}
	if req.URL.Query().Has(whatIf) {
		r.showPlanChange(w, req, []*routing.Service{s})
		return
	}
	answer, err := describePlan(route)
	if err != nil {
		process.WriteError(w, http.StatusInternalServerError, err.Error())
		return
	}
	agreed := r.Routes.Agreed()
	answer.IndexSource, answer.Settings = agreed.IndexSource, planSettingsOf(agreed)
	process.WriteJSON(w, http.StatusOK, answer)
}

// planSettingsOf describes the settings in use.
func planSettingsOf(a *routing.AgreedPlans) api.PlanSettings {
	return api.PlanSettings{Version: a.Version, Author: a.Author, Hash: a.Hash, Values: a.Values, FileVersion: a.FileVersion, FileHash: a.FileHash, Lags: a.Lags(), FromFleet: a.FromFleet, Conflict: a.Conflict}
}

// whatIf is the parameter with a change of the plan.
const whatIf = "what-if"

// planChangeTimeout bounds a comparison, with the wait for another one: less than the command line
// waits.
const planChangeTimeout = 25 * time.Second

// showPlanChange compares the plans of services with those that they would have after a change. It
// reads routes only, so that the router is not delayed, and one comparison runs at a time, so that
// requests keep the processors.
func (r *Relay) showPlanChange(w http.ResponseWriter, req *http.Request, services []*routing.Service) {
	text := req.URL.Query().Get(whatIf)
	change, err := whatif.Parse(text)
	if err != nil {
		process.WriteError(w, http.StatusBadRequest, err.Error())
		return
	}
	ctx, cancel := context.WithTimeout(req.Context(), planChangeTimeout)
	defer cancel()
	select {
	case r.comparing <- struct{}{}:
		defer func() { <-r.comparing }()
	case <-ctx.Done():
		process.WriteError(w, http.StatusServiceUnavailable, "another comparison is running: try again later")
		return
	}
	var planned []whatif.Service
	for _, s := range services {
		if route := s.Route(); route.Plan != nil {
			planned = append(planned, whatif.Service{Plan: route.Basis, RelaysAsked: route.Votes.RelaysAsked()})
		}
	}
	answer, err := whatif.Compare(ctx, planned, change)
	switch {
	case err != nil && ctx.Err() != nil:
		process.WriteError(w, http.StatusServiceUnavailable, err.Error()+": ask about one service")
		return
	case err != nil:
		process.WriteError(w, http.StatusBadRequest, err.Error())
		return
	}
	answer.Change, answer.Service = text, req.PathValue("name")
	process.WriteJSON(w, http.StatusOK, answer)
}

func noPlan(service string) string {
	return fmt.Sprintf("service %q has no endpoint that takes requests, so there is nothing to plan", service)
}

func describePlan(route *routing.Route) (*api.Plan, error) {
	plan := route.Plan
	a := &api.Plan{
		Service: plan.Service(), Strategy: plan.Strategy(), Fallback: plan.Fallback(),
		Absent: api.AbsentMembers{Relays: []string{}, Workers: []string{}}, RelaysPerWorker: map[string]int{},
	}
	a.Refused = route.Refused
	for _, worker := range plan.Workers() {
		switch {
		case route.Refused[worker] != "":
		case route.WorkerAbsent(worker):
			a.Absent.Workers = append(a.Absent.Workers, worker)
		default:
			a.RelaysPerWorker[worker] = 0
		}
	}
	var perRelay []int
	for i, relay := range plan.Affine() {
		planned, err := describeRelay(route, i)
		if err != nil {
			return nil, err
		}
		a.Relays = append(a.Relays, planned)
		if planned.Absent {
			a.Absent.Relays = append(a.Absent.Relays, relay)
			continue
		}
		connections := 0
		for _, w := range planned.Workers {
			if !w.Absent {
				connections++
				a.RelaysPerWorker[w.Worker]++
			}
		}
		a.Connections += connections
		perRelay = append(perRelay, connections)
	}
	perWorker := make([]int, 0, len(a.RelaysPerWorker))
	for _, n := range a.RelaysPerWorker {
		perWorker = append(perWorker, n)
	}
	a.Coverage = api.Coverage{RelaysPerWorker: minMax(perWorker), WorkersPerRelay: minMax(perRelay)}
	loads := plan.Loads()
	a.Load = api.Load{Least: slices.Min(loads), Most: slices.Max(loads)}
	if zones := plan.Zones(); len(zones) > 1 {
		for _, z := range zones {
			a.Zones = append(a.Zones, api.ZoneTraffic{From: z.From.String(), To: z.To.String(), Share: z.Share})
		}
	}
	return a, nil
}

func describeRelay(route *routing.Route, index int) (api.PlannedRelay, error) {
	assignments, err := route.Plan.Assignments(index)
	if err != nil {
		return api.PlannedRelay{}, err
	}
	relay := route.Plan.Affine()[index]
	p := api.PlannedRelay{Relay: relay, Index: index, Absent: route.RelayAbsent(relay), Range: rangeText(route.Plan, index)}
	p.Traffic, p.TrafficRatio = route.Traffic(relay)
	for _, a := range assignments {
		if route.Refused[a.Worker] != "" {
			continue
		}
		p.Workers = append(p.Workers, api.PlannedWorker{Worker: a.Worker, Weight: a.Weight, Absent: route.WorkerAbsent(a.Worker)})
	}
	return p, nil
}

func minMax(counts []int) api.MinMax {
	if len(counts) == 0 {
		return api.MinMax{}
	}
	return api.MinMax{Min: slices.Min(counts), Max: slices.Max(counts)}
}

// rangeText returns the ranges of the relay at index. It is empty with rendezvous, which
// has no ranges, and if there is no such index.
func rangeText(plan *affinity.Plan, index int) string {
	ranges, _ := plan.Ranges(index)
	texts := make([]string, len(ranges))
	for i, r := range ranges {
		texts[i] = r.String()
	}
	return strings.Join(texts, ", ")
}

func (r *Relay) explain(w http.ResponseWriter, req *http.Request, s *routing.Service) {
	route, self, worker := s.Route(), r.cfg.Membership.ID, req.URL.Query().Get("worker")
	refused := refused(s, r.refusedByRules())
	a := api.Explanation{Service: s.Name, Relay: self, Role: role(route), Index: route.Index, IndexSource: r.Routes.Agreed().IndexSource, Reason: noPlan(s.Name), SessionCookie: r.sessionCookie(s), Policy: r.describePolicy(s), Refused: refused}
	a.Demand, a.Limits = s.Demand(), r.limitsOf(s, &r.tuned.Load().Requests)
	if plan := route.Plan; plan != nil {
		a.Strategy, a.Fallback, a.Range, a.Drawing = plan.Strategy(), plan.Fallback(), rangeText(plan, route.Index), plan.Draw(self, worker)
		a.Plan = r.explainPlan(route)
		a.Reason = plan.Explain(self, worker).Reason
		if route.Affine() {
			a.Reason = fmt.Sprintf("%s is one of the %d relays that serve %s; its index is %s", self, len(plan.Affine()), s.Name,
				map[affinity.IndexSource]string{affinity.IndexRank: "its rank among them", affinity.IndexSlot: "the slot that it holds"}[a.IndexSource])
			if route.OutOfReach && len(route.Elsewhere) > 0 {
				a.Reason += fmt.Sprintf("; it reaches none of its %d workers now, so requests go to relays of other zones", route.Unreachable)
			}
		}
	}
	if worker != "" {
		var err error
		if a.Worker, err = r.explainWorker(req.Context(), s, worker); err != nil {
			process.WriteError(w, http.StatusServiceUnavailable, err.Error())
			return
		}
		if a.Worker == nil && refused[worker] != "" {
			a.Worker = &api.ExplainedWorker{Worker: worker, Distance: -1, Position: -1, Reason: refused[worker], Offer: "refused", Link: peering.None.String()}
		}
		if a.Worker == nil {
			process.WriteError(w, http.StatusNotFound, fmt.Sprintf("the worker %.80q does not offer the service %q: %s", worker, s.Name, r.whyNoOffer(worker)))
			return
		}
	}
	process.WriteJSON(w, http.StatusOK, a)
}

// limitsOf returns what can refuse requests to a service with these settings, with the part of this
// relay in each limit.
func (r *Relay) limitsOf(s *routing.Service, requests *ingress.Requests) (l api.Limits) {
	route := s.Route()
	l.NotForClients = !requests.ForClients(s.Name)
	for _, limit := range r.Rates.Of(s, requests) {
		a := api.RateLimit{Of: limit.Of, Subject: limit.Caller, Rate: limit.Rate.String(), Burst: limit.Rate.Burst, Refused: limit.Refused}
		if limit.Of == ingress.RateOfRoute {
			a.Subject = routeText(limit.Route)
		}
		if route.Affine() {
			a.Share = route.Share()
			a.PerSecond = limit.Rate.PerSecond() * a.Share
		}
		l.RateLimits = append(l.RateLimits, a)
	}
	for _, b := range r.blocks.List(time.Now()) {
		if b.Service == s.Name && b.Caller == "*" {
			l.Blocks = append(l.Blocks, describeBlock(b))
		}
	}
	return l
}

// whyNoOffer returns why a worker does not offer a service, as far as this relay knows, and where to
// see the rest.
func (r *Relay) whyNoOffer(worker string) string {
	snapshot, self := r.Fleet.Snapshot(), r.cfg.Membership.ID
	m, present := snapshot.Get(worker)
	switch {
	case present && m.Role != identity.RoleWorker:
		return fmt.Sprintf("it is a %s", m.Role)
	case present:
		return "it is in the fleet; `worker services` on its host shows what it offers, and why a check fails"
	}
	if d, gone := snapshot.Departed(worker); gone {
		return fmt.Sprintf("it is not in the fleet any more (%s, %s ago)", d.Reason, time.Since(d.At).Round(time.Second))
	}
	return fmt.Sprintf("%s does not see it; `worker health --ready` on its host shows why it has not joined, and `relay check` (refusals) what %s has refused", self, self)
}

func (r *Relay) explainPlan(route *routing.Route) *api.ExplainedPlan {
	plan := route.Plan
	x := &api.ExplainedPlan{
		PeersPerWorker: plan.Minimums().PeersPerWorker, PeersPerRelay: plan.Minimums().PeersPerRelay,
		Workers: len(plan.Workers()), Relays: len(plan.Affine()), Computed: route.At,
		RelaysRaised: route.Votes.RelaysRaised(r.Routes.Agreed().Minimums.PeersPerWorker),
	}
	if x.Relays > 0 {
		x.Ratio = float64(x.Workers) / float64(x.Relays)
	}
	if assignments, err := plan.Assignments(route.Index); err == nil && route.Affine() {
		x.Length = len(assignments)
	}
	return x
}

// explainWorker returns nil for a worker that neither offers the service nor has a place
// in its plan.
func (r *Relay) explainWorker(ctx context.Context, s *routing.Service, worker string) (*api.ExplainedWorker, error) {
	route := s.Route()
	at := slices.IndexFunc(route.Endpoints, func(e *advertise.Endpoint) bool { return e.NodeID == worker })
	planned := route.Plan != nil && slices.Contains(route.Plan.Workers(), worker)
	if at < 0 && !planned {
		return nil, nil
	}
	x := &api.ExplainedWorker{Worker: worker, Distance: -1, Position: -1, Reason: noPlan(s.Name), Offer: "absent", Link: "none"}
	if route.Plan != nil {
		e := route.Plan.Explain(r.cfg.Membership.ID, worker)
		x.InRange, x.Reason, x.Distance, x.Position, x.Ring, x.Tier, x.Weight = e.Connected, e.Reason, e.Distance, e.Position, e.Ring, e.Tier, e.Weight
		switch {
		case e.Home:
			x.Group = "home"
		case e.Distance >= 0:
			x.Group = "reserve"
		}
	}
	if at < 0 {
		return x, nil
	}
	endpoint := route.Endpoints[at]
	if route.Plan != nil && !planned && endpoint.State == advertise.Ready && s.Choice().Spec.Name == strategy.Slots {
		x.Reason = fmt.Sprintf("strategy slots uses only version %q of %s, the highest that more than half of the workers have or exceed, and %s offers version %q", route.Version, s.Name, worker, endpoint.Version)
	}
	x.Address, x.Offer = endpoint.Address, string(endpoint.State)
	if endpoint.Unreachable {
		x.Offer = "unreachable"
	}
	if reason := route.Refused[worker]; reason != "" {
		x.Offer, x.Reason, x.InRange = "refused", reason, false
	}
	state, err := r.Routes.Link(ctx, endpoint)
	if err != nil {
		return nil, err
	}
	x.Link, x.Connected = state.String(), state >= peering.Open
	for _, p := range r.describe(s).Peers {
		if p.Node == worker {
			x.Connected, x.Balancer, x.LastReason = p.Connected, p.State, p.LastReason
		}
	}
	return x, nil
}

func describeSelection(s *routing.Service) api.Selection {
	c := s.Choice()
	a := api.Selection{Strategy: c.Spec.Name, Parameters: c.Spec.Parameters(), Text: c.Spec.String(), Origin: string(c.Origin)}
	if s.Route().Affine() { // a forwarding relay has no range, so every node would be unknown
		a.UnknownPreferred = c.UnknownPreferred()
	}
	return a
}

// sessionCookie returns the name of the cookie of a service, empty without one.
func (r *Relay) sessionCookie(s *routing.Service) string {
	name, _ := r.cfg.Strategies.SessionCookie(s.Name, s.Route().Policy)
	return name
}

func (r *Relay) showRoute(w http.ResponseWriter, req *http.Request, s *routing.Service) {
	process.WriteJSON(w, http.StatusOK, r.routeOf(s, ingress.BoundedKey(req.URL.Query().Get("key")), &r.tuned.Load().Requests))
}

// routeOf returns where a request with the key would go now, and what of these settings can refuse it.
func (r *Relay) routeOf(s *routing.Service, key string, requests *ingress.Requests) api.Route {
	route := s.Route()
	a := api.Route{Service: s.Name, Relay: r.cfg.Membership.ID, Role: role(route), Key: key, SessionCookie: r.sessionCookie(s), Limits: r.limitsOf(s, requests)}
	if route.Affine() {
		d := s.Explain(key, selection.Instant(time.Since(r.Epoch())))
		a.Decision = describeDecision(&d)
	} else {
		a.Relays = routeRelays(s)
		a.Next, a.NextReason = nextRelay(s, key, a.Relays)
	}
	return a
}

// describeDecision returns nil for no decision.
func describeDecision(d *routing.Decision) *api.Decision {
	if d == nil {
		return nil
	}
	a := &api.Decision{
		Strategy: d.Strategy, Origin: string(d.Origin), Key: d.Key, Winner: d.Winner, Reason: d.Reason, Measure: d.Measure,
		Candidates: []api.Candidate{}, Range: d.Range,
	}
	for _, c := range d.Candidates {
		of := api.Candidate{Node: c.Node, ID: c.ID, Address: c.Address, Score: c.Score, Note: c.Note}
		if p := c.Parts; p != nil {
			of.Parts = &api.ScoreParts{LatencyMs: milliseconds(p.Latency), Queue: p.Queue, Headroom: p.Headroom, Success: p.Success, Ramp: p.Ramp}
		}
		a.Candidates = append(a.Candidates, of)
	}
	if c := d.Canary; c != nil {
		a.Canary = &api.Canary{Version: c.Version, Share: c.Share, Workers: c.Workers, Place: c.Place, Chosen: c.Chosen}
	}
	return a
}

// nextRelay returns the relay that a request with the key would be forwarded to now.
func nextRelay(s *routing.Service, key string, relays []api.RouteRelay) (id, reason string) {
	if len(relays) == 0 {
		return "", ""
	}
	first := relays[0]
	if key != "" {
		if id, bound := s.Relays().Bound(key); bound {
			return id, "the key sticks to it"
		}
		if first.Role == "primary" {
			return first.Relay, "its turn among the primaries; the key will stick to it"
		}
	}
	if first.Role == "primary" {
		return first.Relay, "its turn among the primaries"
	}
	return first.Relay, "no primary is connected, and it is the first " + first.Role
}

// routeRelays returns the relays that a service is forwarded to, in the order of use.
func routeRelays(s *routing.Service) []api.RouteRelay {
	out := []api.RouteRelay{}
	forwarding, peers := describeForwarding(s)
	if forwarding == nil {
		return out
	}
	order := slices.Concat(forwarding.Primaries, forwarding.Backups, forwarding.Joining)
	for _, id := range order {
		i := slices.IndexFunc(peers, func(p api.Peer) bool { return p.Node == id })
		if i < 0 {
			continue
		}
		p := peers[i]
		out = append(out, api.RouteRelay{Relay: p.Node, Address: p.Address, Role: p.Role, Health: p.Health, EstimateMs: p.Score, InFlight: p.InFlight})
	}
	return out
}
