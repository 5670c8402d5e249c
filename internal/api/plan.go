package api

import (
	"time"

	"github.com/ringway/ringway/affinity"
)

// Plan is the answer to GET /api/v1/services/{name}/plan: the whole plan, as every relay computes it. Members that have
// vanished may still have their place in it; they are marked and not counted.
type Plan struct {
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

// Explanation is the answer to GET /api/v1/services/{name}/explain: how this relay serves
// the service and why.
type Explanation struct {
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
	// Policy is the policy in effect for the requests to the service.
	Policy []PolicyField `json:"policy"`
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
