package api

import (
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/affinity"
)

// Services is the answer to GET /api/v1/services.
type Services struct {
	Relay    string          `json:"relay"`
	Services []ListedService `json:"services"` // by name
}

// ListedService is one service in the list.
type ListedService struct {
	ServiceSummary
	// Ready is how many of the endpoints take requests: they are not draining.
	Ready int `json:"ready"`
	// Relays is how many relays serve the service.
	Relays    int    `json:"relays"`
	RangeText string `json:"range_text,omitempty"`
	// Requests is how many requests this relay has finished since it started.
	Requests uint64 `json:"requests"`
}

// ServiceSummary has the fields that the list and the description of a service share.
type ServiceSummary struct {
	Service   string `json:"service"`
	Role      string `json:"role"`
	Endpoints int    `json:"endpoints"`
	Range     int    `json:"range"`
	InFlight  int64  `json:"in_flight"`
	// Refused are the workers whose offers this relay does not use, with the reason.
	Refused map[string]string `json:"refused,omitempty"`
}

// Service is the answer to GET /api/v1/services/{name}.
type Service struct {
	ServiceSummary
	Relay        string                `json:"relay"`
	Index        int                   `json:"index"` // -1 if this relay forwards
	AffineRelays []string              `json:"affine_relays"`
	RelaysRaised string                `json:"relays_raised,omitempty"` // as in ExplainedPlan
	RangeText    string                `json:"range_text,omitempty"`
	Selection    Selection             `json:"selection"`
	Policy       []PolicyField         `json:"policy"`
	Forwarding   *Forwarding           `json:"forwarding,omitempty"`
	Peers        []Peer                `json:"peers"`
	Catalogue    []*advertise.Endpoint `json:"catalogue"`
}

// Peer is one endpoint of the range, or one relay to forward to.
type Peer struct {
	Node       string  `json:"node"`
	Address    string  `json:"address"`
	Connected  bool    `json:"connected"`
	Weight     float64 `json:"weight"`
	State      string  `json:"state"`
	EWMAms     float64 `json:"ewma_ms"`
	InFlight   int     `json:"in_flight"`
	Limit      int     `json:"limit,omitempty"` // of in_flight: this relay's share of the slots
	Requests   uint64  `json:"requests"`
	Failures   uint64  `json:"failures"`
	ErrorRate  float64 `json:"error_rate"`
	Score      float64 `json:"score"` // milliseconds
	LastReason string  `json:"last_reason,omitempty"`
	PeerRelay
}

// Forwarding is how a service is forwarded.
type Forwarding struct {
	Primaries  []string `json:"primaries"`  // used in turn, in this order
	Backups    []string `json:"backups"`    // connected, promoted in this order
	Joining    []string `json:"joining"`    // being connected
	Candidates []string `json:"candidates"` // best first
	Reach      string   `json:"reach"`      // how far candidates may be
	Bindings   int      `json:"bindings"`   // keys bound to a relay
}

// PeerRelay has the fields of a relay to forward to that a worker does not have.
type PeerRelay struct {
	Role        string  `json:"role,omitempty"` // primary, backup, or none
	Tier        string  `json:"tier,omitempty"`
	Health      string  `json:"health,omitempty"`
	P99ms       float64 `json:"p99_ms,omitempty"`
	Consecutive int     `json:"consecutive_failures,omitempty"`
	OutForMs    int64   `json:"out_for_ms,omitempty"` // until it may be connected to again
}

// PolicyField is one field of the policy in effect for the requests to a service.
type PolicyField struct {
	Key string `json:"key"`
	// Value is empty for no limit. That of slots, which are of each worker, is a number, or as in
	// "20 to 50" or "20 or none" where workers advertise different ones. The field session-cookie
	// is absent for a service without one, and empty if the settings take it away.
	Value string `json:"value"`
	// Origin is service_setting, setting (--service-policy for all services), advertisement or
	// default (the other settings of this relay).
	Origin string `json:"origin"`
}

// Selection is how the endpoints of a service are picked.
type Selection struct {
	// Strategy is its name; Parameters are all its parameters by name, including those with
	// their defaults.
	Strategy   string            `json:"strategy"`
	Parameters map[string]string `json:"parameters,omitempty"`
	// Text is both in the form of a setting.
	Text string `json:"text"`
	// Origin is service_setting, advertisement, setting or default.
	Origin string `json:"origin"`
	// UnknownPreferred are preferred nodes that do not offer the service.
	UnknownPreferred []string `json:"unknown_preferred,omitempty"`
}

// Route is the answer to GET /api/v1/services/{name}/route: where a request with a key would
// go, and why.
type Route struct {
	Service string `json:"service"`
	Relay   string `json:"relay"`
	Role    string `json:"role"` // affine, forwarding or none
	Key     string `json:"key,omitempty"`
	// SessionCookie is the name of the service's cookie, empty without one: a request with a
	// valid cookie goes to the worker that the cookie names. Decision and Relays are for a
	// request without it.
	SessionCookie string `json:"session_cookie,omitempty"`
	// Naming is what names the service, if the question was about a request. Without a service, or
	// with one that is not known, the rest is empty.
	Naming *Naming `json:"naming,omitempty"`
	// Decision is how an endpoint is picked; nil if this relay forwards.
	Decision *Decision `json:"decision,omitempty"`
	// Relays are the relays to forward to, in the order of use: the primaries in turn,
	// except that a key stays with its relay, then the backups. Nil if this relay is affine.
	Relays []RouteRelay `json:"relays,omitempty"`
	// Next is the one of Relays that the request would go to now, and NextReason why; empty
	// if this relay is affine, and if there is none.
	Next       string `json:"next,omitempty"`
	NextReason string `json:"next_reason,omitempty"`
	// Limits has all routes with a rate, or if the question was about a request only the one that
	// matches it. Which of several callers the client is cannot be asked.
	Limits
}

// Naming is how a request names its service.
type Naming struct {
	// By is header, domain or route; empty if nothing names a service.
	By string `json:"by"`
	// Route is the place of the route in the settings, from 1; 0 if none decides. Text is the route.
	Route int    `json:"route,omitempty"`
	Text  string `json:"text,omitempty"`
}

// RouteRelay is one relay that the service can be forwarded to.
type RouteRelay struct {
	Relay   string `json:"relay"`
	Address string `json:"address"`
	// Role is primary, backup or joining; empty for a relay that is not connected.
	Role   string `json:"role,omitempty"`
	Health string `json:"health,omitempty"`
	// EstimateMs is the expected latency in milliseconds, by which draws compare relays.
	EstimateMs float64 `json:"estimate_ms"`
	InFlight   int     `json:"in_flight"`
}

// Decision describes for people how a request gets its endpoint.
type Decision struct {
	// Strategy and Origin are those of the Selection.
	Strategy string `json:"strategy"`
	Origin   string `json:"origin"`
	// Key is the request's key, if the strategy uses it.
	Key string `json:"key,omitempty"`
	// Winner is the node that gets the request; empty if none does.
	Winner string `json:"winner"`
	// Reason is the reason for the winner, or for having none.
	Reason string `json:"reason"`
	// Measure describes the candidates' scores.
	Measure string `json:"measure"`
	// Candidates are the endpoints that were compared; Range is how many there are.
	Candidates []Candidate `json:"candidates"`
	Range      int         `json:"range"`
	// Canary is nil if the service has none.
	Canary *Canary `json:"canary,omitempty"`
}

// Canary is a version of a service that gets a share of its requests.
type Canary struct {
	Version string  `json:"version"`
	Share   float64 `json:"share"`
	Workers int     `json:"workers"`
	// Place of the key between 0 and 1; keys below Share belong to the canary. 0 without a
	// key: then chance decides.
	Place float64 `json:"place"`
	// Chosen reports whether the request belongs to the canary.
	Chosen bool `json:"chosen"`
}

// Candidate is one endpoint that was compared.
type Candidate struct {
	Node    string  `json:"node"`
	ID      string  `json:"id"`
	Address string  `json:"address"`
	Score   float64 `json:"score"`
	// Parts are the factors of a score of the balancer.
	Parts *ScoreParts `json:"parts,omitempty"`
	// Note is the remark about the candidate, such as its eviction.
	Note string `json:"note,omitempty"`
}

// ScoreParts are the factors of score = latency · (queue + headroom + 1) / success² / ramp.
type ScoreParts struct {
	LatencyMs float64 `json:"latency_ms"`
	Queue     float64 `json:"queue"`
	Headroom  float64 `json:"headroom"`
	Success   float64 `json:"success"`
	Ramp      float64 `json:"ramp"`
}

// ExplainedRequest is the answer to GET /api/v1/requests/{id}/explain: how the endpoints of
// one request were chosen.
type ExplainedRequest struct {
	ID      string `json:"id"`
	Relay   string `json:"relay"`
	Service string `json:"service"`
	// Time is when the request began, DurationMs how long it took.
	Time       time.Time `json:"time"`
	DurationMs float64   `json:"duration_ms"`
	// Status is what the client got, 0 if it got no answer; Outcome and Code are those of the
	// request's record.
	Status  int    `json:"status"`
	Outcome string `json:"outcome"`
	Code    string `json:"code,omitempty"`
	// Attempts are in order.
	Attempts []ExplainedAttempt `json:"attempts"`
}

// ExplainedAttempt is one attempt of an ExplainedRequest.
type ExplainedAttempt struct {
	// Endpoint is empty if none could be chosen.
	Endpoint string `json:"endpoint,omitempty"`
	// ChosenBy is a strategy, session_cookie, or relay_pool.
	ChosenBy string `json:"chosen_by,omitempty"`
	Status   int    `json:"status,omitempty"`
	Failure  string `json:"failure,omitempty"`
	// Decision has the candidates with their scores at the time of the choice, at most 16 of
	// them. It is nil for a relay, which takes its turn in the pool.
	Decision *Decision `json:"decision,omitempty"`
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
	// Demand is how many requests per second arrive at this relay, averaged over half a minute; absent
	// if it forwards.
	Demand float64 `json:"demand_per_second,omitempty"`
	Limits
	// Refused are the workers whose offers this relay does not use, with the reason.
	Refused map[string]string `json:"refused,omitempty"`
	// Drawing shows the rings in which this relay has a part; empty if it forwards.
	Drawing string `json:"drawing,omitempty"`
}

// Limits are what can refuse requests to a service: RateLimits, and Blocks of all callers.
type Limits struct {
	// NotForClients is true if --ingress-service is set and does not have the service: clients of this
	// relay get the same 404 as for a service that no worker offers. Forwarded requests pass.
	NotForClients bool        `json:"not_for_clients,omitempty"`
	RateLimits    []RateLimit `json:"rate_limits,omitempty"`
	Blocks        []Block     `json:"blocks,omitempty"`
}

// RateLimit is a limit on requests per second that applies to a service.
type RateLimit struct {
	// Of is what it counts: service, caller or route. Subject is which caller, * for each, or route.
	Of      string `json:"of"`
	Subject string `json:"subject,omitempty"`
	// Rate is what all relays together let pass, and Burst how many may come together; absent for the
	// default.
	Rate  string `json:"rate"`
	Burst int    `json:"burst,omitempty"`
	// Share is the part of this relay, and PerSecond what it lets pass. Both are 0 if it forwards: the
	// relays that it forwards to count.
	Share     float64 `json:"share"`
	PerSecond float64 `json:"per_second"`
	// Refused counts the requests that this relay has refused: of this service for one that counts the
	// service, otherwise of all services.
	Refused uint64 `json:"refused"`
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
	// RelaysRaised is why more relays serve the service than its workers ask for; empty if that
	// is not so.
	RelaysRaised string `json:"relays_raised,omitempty"`
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
	// cannot connect to it), refused (this relay may not use it, for Reason), or absent (it
	// has vanished and keeps its place).
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
