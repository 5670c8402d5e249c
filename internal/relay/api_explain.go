package relay

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/affinity/peering"
	"github.com/ringway/ringway/internal/admin"
	"github.com/ringway/ringway/internal/relay/routing"
	"github.com/ringway/ringway/selection/strategy"
)

// ExplainAnswer says what this relay does for a service and why.
type ExplainAnswer struct {
	Service string `json:"service"`
	Relay   string `json:"relay"`
	Role    string `json:"role"`  // affine, forwarding or none
	Index   int    `json:"index"` // -1 when forwarding
	// Reason is why the role is what it is, in one sentence.
	Reason      string               `json:"reason"`
	Strategy    affinity.Strategy    `json:"strategy,omitempty"`
	Fallback    string               `json:"fallback,omitempty"`
	IndexSource affinity.IndexSource `json:"index_source"`
	Range       string               `json:"range,omitempty"`
	// Plan is what the plan rests on; nil without one.
	Plan *ExplainedPlan `json:"plan,omitempty"`
	// Worker is there when one was asked for.
	Worker *ExplainedWorker `json:"worker,omitempty"`
	// Drawing is the rings that this relay has a part in; empty when forwarding.
	Drawing string `json:"drawing,omitempty"`
}

// ExplainedPlan is what a plan rests on.
type ExplainedPlan struct {
	// PeersPerWorker and PeersPerRelay are the minimums in force: those of the settings,
	// or higher ones that the strategy of the service needs.
	PeersPerWorker int `json:"min_peers_per_worker"`
	PeersPerRelay  int `json:"min_peers_per_relay"`
	// Workers and Relays are those of the plan, Ratio is workers for each relay.
	Workers int     `json:"workers"`
	Relays  int     `json:"relays"`
	Ratio   float64 `json:"ratio"`
	// Length is how many workers this relay connects to, 0 when forwarding.
	Length int `json:"length"`
	// Computed is when; a plan stays until something that it rests on changes.
	Computed time.Time `json:"computed"`
}

// ExplainedWorker is what this relay has to do with one worker of the service.
type ExplainedWorker struct {
	Worker string `json:"worker"`
	// InRange says that the plan connects the two; Reason why or why not.
	InRange bool   `json:"in_range"`
	Reason  string `json:"reason"`
	// Distance is how many places outside the range the worker is, 0 inside, -1 where
	// the two have nothing to do with each other.
	Distance int `json:"distance"`
	// Position is the worker's on a ring of Ring, -1 if it is not in the plan.
	Position int `json:"position"`
	Ring     int `json:"ring"`
	// Tier is how near the two are: same_dc, same_region or global. Group says whether
	// the relay is at home in the worker's group or a reserve there; empty where it has
	// no part in it.
	Tier  string `json:"tier,omitempty"`
	Group string `json:"group,omitempty"`

	// Offer is the state of the worker's offer: ready, draining, unreachable (this
	// relay cannot connect to it), or absent, when it has vanished and keeps its place.
	Offer   string `json:"offer"`
	Address string `json:"address,omitempty"`
	// Link is how far the connection has come: none, waiting, opening, open, spare or
	// draining. Connected says that one is open now.
	Link      string  `json:"link"`
	Connected bool    `json:"connected"`
	Weight    float64 `json:"weight"`
	// Balancer is active, evicted or half_open for a worker that gets requests from
	// this relay, and LastReason why it was last evicted.
	Balancer   string `json:"balancer,omitempty"`
	LastReason string `json:"last_reason,omitempty"`
}

func (r *Relay) explain(w http.ResponseWriter, req *http.Request, s *routing.Service) {
	route, self, worker := s.Route(), r.cfg.Membership.ID, req.URL.Query().Get("worker")
	a := ExplainAnswer{Service: s.Name, Relay: self, Role: role(route), Index: route.Index, IndexSource: r.indexSource(), Reason: nothingToPlan(s.Name)}
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
			admin.WriteError(w, http.StatusServiceUnavailable, err.Error())
			return
		}
		if a.Worker == nil {
			admin.WriteError(w, http.StatusNotFound, fmt.Sprintf("the worker %.80q does not offer the service %q", worker, s.Name))
			return
		}
	}
	admin.WriteJSON(w, http.StatusOK, a)
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

// explainWorker is nil for a worker that neither offers the service nor has a place in
// its plan.
func (r *Relay) explainWorker(ctx context.Context, s *routing.Service, worker string) (*ExplainedWorker, error) {
	route := s.Route()
	at := slices.IndexFunc(route.Endpoints, func(e *advertise.Endpoint) bool { return e.NodeID == worker })
	planned := route.Plan != nil && slices.Contains(route.Plan.Workers(), worker)
	if at < 0 && !planned {
		return nil, nil
	}
	x := &ExplainedWorker{Worker: worker, Distance: -1, Position: -1, Reason: nothingToPlan(s.Name), Offer: "absent", Link: "none"}
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
