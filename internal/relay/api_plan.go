package relay

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/affinity/peering"
	"github.com/ringway/ringway/internal/node"
	"github.com/ringway/ringway/internal/relay/routing"
	"github.com/ringway/ringway/selection/strategy"
)

// PlanAnswer is the whole plan of a service, as every relay computes it. Members that have
// vanished may still have their place in it; they are marked and not counted.
type PlanAnswer struct {
	Service string `json:"service"`
	// Strategy is the one in use; Fallback is the reason if another one was configured.
	Strategy    affinity.Strategy    `json:"strategy"`
	Fallback    string               `json:"fallback,omitempty"`
	IndexSource affinity.IndexSource `json:"index_source"`

	Relays []PlannedRelay `json:"relays"` // by index
	// Absent are the members of the plan that have vanished.
	Absent AbsentMembers `json:"absent"`

	RelaysPerWorker map[string]int `json:"relays_per_worker"`
	Coverage        Coverage       `json:"coverage"`
	Connections     int            `json:"connections"`
}

// PlannedRelay is one affine relay with its workers.
type PlannedRelay struct {
	Relay   string          `json:"relay"`
	Index   int             `json:"index"`
	Absent  bool            `json:"absent,omitempty"`
	Range   string          `json:"range,omitempty"` // empty with rendezvous
	Workers []PlannedWorker `json:"workers"`
}

// PlannedWorker is a worker in the range of a relay.
type PlannedWorker struct {
	Worker string  `json:"worker"`
	Weight float64 `json:"weight"`
	Absent bool    `json:"absent,omitempty"`
}

// AbsentMembers are IDs, in the order of the plan.
type AbsentMembers struct {
	Relays  []string `json:"relays"`
	Workers []string `json:"workers"`
}

// Coverage counts connections from both sides.
type Coverage struct {
	RelaysPerWorker MinMax `json:"relays_per_worker"`
	WorkersPerRelay MinMax `json:"workers_per_relay"`
}

// MinMax is the least and the greatest of some counts, 0 without counts.
type MinMax struct {
	Min int `json:"min"`
	Max int `json:"max"`
}

func (r *Relay) showPlan(w http.ResponseWriter, _ *http.Request, s *routing.Service) {
	route := s.Route()
	if route.Plan == nil {
		node.WriteError(w, http.StatusServiceUnavailable, noPlan(s.Name))
		return
	}
	answer, err := describePlan(route)
	if err != nil {
		node.WriteError(w, http.StatusInternalServerError, err.Error())
		return
	}
	answer.IndexSource = r.indexSource()
	node.WriteJSON(w, http.StatusOK, answer)
}

func noPlan(service string) string {
	return fmt.Sprintf("service %q has no endpoint that takes requests, so there is nothing to plan", service)
}

func (r *Relay) indexSource() affinity.IndexSource {
	return cmp.Or(r.cfg.Plans.IndexSource, affinity.IndexRank)
}

func describePlan(route *routing.Route) (*PlanAnswer, error) {
	plan := route.Plan
	a := &PlanAnswer{
		Service: plan.Service(), Strategy: plan.Strategy(), Fallback: plan.Fallback(),
		Absent: AbsentMembers{[]string{}, []string{}}, RelaysPerWorker: map[string]int{},
	}
	for _, worker := range plan.Workers() {
		if route.WorkerAbsent(worker) {
			a.Absent.Workers = append(a.Absent.Workers, worker)
		} else {
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
	a.Coverage = Coverage{RelaysPerWorker: minMax(perWorker), WorkersPerRelay: minMax(perRelay)}
	return a, nil
}

func describeRelay(route *routing.Route, index int) (PlannedRelay, error) {
	assignments, err := route.Plan.Assignments(index)
	if err != nil {
		return PlannedRelay{}, err
	}
	relay := route.Plan.Affine()[index]
	p := PlannedRelay{Relay: relay, Index: index, Absent: route.RelayAbsent(relay), Range: rangeText(route.Plan, index)}
	for _, a := range assignments {
		p.Workers = append(p.Workers, PlannedWorker{a.Worker, a.Weight, route.WorkerAbsent(a.Worker)})
	}
	return p, nil
}

func minMax(counts []int) MinMax {
	if len(counts) == 0 {
		return MinMax{}
	}
	return MinMax{slices.Min(counts), slices.Max(counts)}
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

// ExplainAnswer describes how this relay serves a service and why.
type ExplainAnswer struct {
	Service string `json:"service"`
	Relay   string `json:"relay"`
	Role    string `json:"role"`  // affine, forwarding or none
	Index   int    `json:"index"` // -1 if it forwards
	// Reason is the reason for the role, in one sentence.
	Reason      string               `json:"reason"`
	Strategy    affinity.Strategy    `json:"strategy,omitempty"`
	Fallback    string               `json:"fallback,omitempty"`
	IndexSource affinity.IndexSource `json:"index_source"`
	Range       string               `json:"range,omitempty"`
	// SessionCookie is the name of the cookie that keeps a client's requests on one worker;
	// empty for a service without one.
	SessionCookie string `json:"session_cookie,omitempty"`
	// Plan holds the basis of the plan; nil without a plan.
	Plan *ExplainedPlan `json:"plan,omitempty"`
	// Worker is set if the request names a worker.
	Worker *ExplainedWorker `json:"worker,omitempty"`
	// Drawing shows the rings in which this relay has a part; empty if it forwards.
	Drawing string `json:"drawing,omitempty"`
}

// ExplainedPlan holds the basis of a plan.
type ExplainedPlan struct {
	// PeersPerWorker and PeersPerRelay are the minimums in effect: those of the settings, or
	// higher ones that the strategy of the service needs.
	PeersPerWorker int `json:"min_peers_per_worker"`
	PeersPerRelay  int `json:"min_peers_per_relay"`
	// Workers and Relays are the numbers in the plan, Ratio is workers per relay.
	Workers int     `json:"workers"`
	Relays  int     `json:"relays"`
	Ratio   float64 `json:"ratio"`
	// Length is how many workers this relay connects to, 0 if it forwards.
	Length int `json:"length"`
	// Computed is when the plan was made; a plan stays until its basis changes.
	Computed time.Time `json:"computed"`
}

// ExplainedWorker describes the relation of this relay to one worker of the service.
type ExplainedWorker struct {
	Worker string `json:"worker"`
	// InRange reports whether the plan connects the two; Reason is the reason.
	InRange bool   `json:"in_range"`
	Reason  string `json:"reason"`
	// Distance is how many places outside the range the worker is, 0 inside, -1 if the relay
	// has no part in the worker's ring.
	Distance int `json:"distance"`
	// Position is the worker's place on a ring of Ring workers, -1 if it is not in the plan.
	Position int `json:"position"`
	Ring     int `json:"ring"`
	// Tier is how near the two are: same_dc, same_region or global. Group is whether the
	// relay belongs to the worker's group (home) or is a reserve there; empty if neither.
	Tier  string `json:"tier,omitempty"`
	Group string `json:"group,omitempty"`

	// Offer is the state of the worker's offer: ready, draining, unreachable (this relay
	// cannot connect to it), or absent (it has vanished and keeps its place).
	Offer   string `json:"offer"`
	Address string `json:"address,omitempty"`
	// Link is the state of the connection: none, waiting, opening, open, spare or draining.
	// Connected reports whether one is open now.
	Link      string  `json:"link"`
	Connected bool    `json:"connected"`
	Weight    float64 `json:"weight"`
	// Balancer is active, evicted or half_open for a worker that gets requests from this
	// relay, and LastReason the reason of its last eviction.
	Balancer   string `json:"balancer,omitempty"`
	LastReason string `json:"last_reason,omitempty"`
}

func (r *Relay) explain(w http.ResponseWriter, req *http.Request, s *routing.Service) {
	route, self, worker := s.Route(), r.cfg.Membership.ID, req.URL.Query().Get("worker")
	a := ExplainAnswer{Service: s.Name, Relay: self, Role: role(route), Index: route.Index, IndexSource: r.indexSource(), Reason: noPlan(s.Name), SessionCookie: r.cfg.Choosing.SessionCookies[s.Name]}
	if plan := route.Plan; plan != nil {
		a.Strategy, a.Fallback, a.Range, a.Drawing = plan.Strategy(), plan.Fallback(), rangeText(plan, route.Index), plan.Draw(self, worker)
		a.Plan = explainPlan(route)
		a.Reason = plan.Explain(self, worker).Reason
		if route.Affine() {
			a.Reason = fmt.Sprintf("%s is one of the %d relays that serve %s; its index is %s", self, len(plan.Affine()), s.Name,
				map[affinity.IndexSource]string{affinity.IndexRank: "its rank among them", affinity.IndexSlot: "the slot that it holds"}[a.IndexSource])
		}
	}
	if worker != "" {
		var err error
		if a.Worker, err = r.explainWorker(req.Context(), s, worker); err != nil {
			node.WriteError(w, http.StatusServiceUnavailable, err.Error())
			return
		}
		if a.Worker == nil {
			node.WriteError(w, http.StatusNotFound, fmt.Sprintf("the worker %.80q does not offer the service %q", worker, s.Name))
			return
		}
	}
	node.WriteJSON(w, http.StatusOK, a)
}

func explainPlan(route *routing.Route) *ExplainedPlan {
	plan := route.Plan
	x := &ExplainedPlan{
		PeersPerWorker: plan.Minimums().PeersPerWorker, PeersPerRelay: plan.Minimums().PeersPerRelay,
		Workers: len(plan.Workers()), Relays: len(plan.Affine()), Computed: route.At,
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
func (r *Relay) explainWorker(ctx context.Context, s *routing.Service, worker string) (*ExplainedWorker, error) {
	route := s.Route()
	at := slices.IndexFunc(route.Endpoints, func(e *advertise.Endpoint) bool { return e.NodeID == worker })
	planned := route.Plan != nil && slices.Contains(route.Plan.Workers(), worker)
	if at < 0 && !planned {
		return nil, nil
	}
	x := &ExplainedWorker{Worker: worker, Distance: -1, Position: -1, Reason: noPlan(s.Name), Offer: "absent", Link: "none"}
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
		x.Reason = fmt.Sprintf("strategy slots uses the highest version of %s only, and %s offers version %q", s.Name, worker, endpoint.Version)
	}
	x.Address, x.Offer = endpoint.Address, string(endpoint.State)
	if endpoint.Unreachable {
		x.Offer = "unreachable"
	}
	state, err := r.router.Link(ctx, endpoint)
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
