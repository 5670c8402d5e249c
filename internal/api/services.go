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
	Origin Origin `json:"origin"`
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
	Origin Origin `json:"origin"`
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
	// Decision is how an endpoint is picked; nil if this relay forwards.
	Decision *Decision `json:"decision,omitempty"`
	// Relays are the relays to forward to, in the order of use: the primaries in turn,
	// except that a key stays with its relay, then the backups. Nil if this relay is affine.
	Relays []RouteRelay `json:"relays,omitempty"`
	// Next is the one of Relays that the request would go to now, and NextReason why; empty
	// if this relay is affine, and if there is none.
	Next       string `json:"next,omitempty"`
	NextReason string `json:"next_reason,omitempty"`
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
	// Strategy and Origin are those of the choice.
	Strategy string `json:"strategy"`
	Origin   Origin `json:"origin"`
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

// Origin is where the strategy of a service, or a field of its policy, comes from.
type Origin string

// The origins in order of precedence, the highest first.
const (
	FromServiceSetting Origin = "service_setting" // this relay's setting for this service
	FromAdvertisement  Origin = "advertisement"   // the service's own endpoints
	FromSetting        Origin = "setting"         // this relay's setting for all services
	FromDefault        Origin = "default"
)

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

// PlanSettings are where the settings of plans come from.
type PlanSettings struct {
	// Version is the one in use; 0 is the relay's own configuration.
	Version uint64 `json:"version"`
	// Author is the relay from whose configuration they are, Hash a short name of the values.
	Author string `json:"author"`
	Hash   string `json:"hash"`
	// Values are the settings, as in strategy=projection&min-peers-per-worker=3.
	Values string `json:"values"`
	// FileVersion and FileHash are those of this relay's own configuration; Lags means that
	// it is older than what is in use, or has other values.
	FileVersion uint64 `json:"file_version"`
	FileHash    string `json:"file_hash"`
	Lags        bool   `json:"lags"`
	// FromFleet is whether the relay uses what other relays state.
	FromFleet bool `json:"from_fleet"`
	// Conflict names another relay with other values of the version in use.
	Conflict string `json:"conflict,omitempty"`
}

// Plan is the answer to GET /api/v1/services/{name}/plan: the whole plan, as every relay computes it. Members that have
// vanished may still have their place in it; they are marked and not counted.
type Plan struct {
	Service string `json:"service"`
	// Strategy is the one in use; Fallback is the reason if another one was configured.
	Strategy    affinity.Strategy    `json:"strategy"`
	Fallback    string               `json:"fallback,omitempty"`
	IndexSource affinity.IndexSource `json:"index_source"`
	// Settings are where the settings come from that the plan is made with.
	Settings PlanSettings `json:"settings"`

	Relays []PlannedRelay `json:"relays"` // by index
	// Absent are the members of the plan that have vanished.
	Absent AbsentMembers `json:"absent"`

	RelaysPerWorker map[string]int `json:"relays_per_worker"`
	Coverage        Coverage       `json:"coverage"`
	Connections     int            `json:"connections"`
	Load            Load           `json:"load"`
	// Zones is the expected traffic between zones; empty if all members are in one.
	Zones []ZoneTraffic `json:"zones,omitempty"`
	// Refused are the workers whose offers this relay does not use, with the reason.
	Refused map[string]string `json:"refused,omitempty"`
}

// Load is the expected load of workers as a multiple of their share by weight: the mean is 1. Most
// is the least that the connections and the traffic of the relays allow.
type Load struct {
	Least float64 `json:"least"`
	Most  float64 `json:"most"`
}

// ZoneTraffic is what the relays of one zone send to the workers of one.
type ZoneTraffic struct {
	From  string  `json:"from"`
	To    string  `json:"to"`
	Share float64 `json:"share"` // of all traffic of the service, 0 to 1
}

// PlannedRelay is one affine relay with its workers.
type PlannedRelay struct {
	Relay  string `json:"relay"`
	Index  int    `json:"index"`
	Absent bool   `json:"absent,omitempty"`
	Range  string `json:"range,omitempty"` // empty with rendezvous
	// Traffic is how many requests per second the relay states for the service, TrafficRatio how
	// many times the mean of what the relays state that is. Both are missing if it states none.
	Traffic      int             `json:"traffic,omitempty"`
	TrafficRatio float64         `json:"traffic_ratio,omitempty"`
	Workers      []PlannedWorker `json:"workers"`
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

// PlanChange is the answer to GET /api/v1/services/{name}/plan?what-if=CHANGE and
// GET /api/v1/plan?what-if=CHANGE: the plan of one service, or of all, now and after a change.
// Members that have vanished are not counted.
type PlanChange struct {
	// Service is empty for all services; Services is how many were planned.
	Service  string `json:"service,omitempty"`
	Services int    `json:"services"`
	// Change is the change as it was asked for.
	Change string `json:"change"`

	Now  PlanFigures `json:"now"`
	Then PlanFigures `json:"then"`
	// Opened and Closed are pairs of a relay and a worker that only one of the two plans
	// connects, counted for each service. MostOpened is how many of them one relay opens, and
	// MostOpenedBy the first relay that does; +1 is one that joins.
	Opened       int    `json:"opened"`
	Closed       int    `json:"closed"`
	MostOpened   int    `json:"most_opened"`
	MostOpenedBy string `json:"most_opened_by,omitempty"`
}

// PlanFigures describes the plans of one or more services.
type PlanFigures struct {
	// Strategy is the configured one; Fallback names a service that cannot use it, with the reason.
	Strategy       affinity.Strategy    `json:"strategy"`
	Fallback       string               `json:"fallback,omitempty"`
	IndexSource    affinity.IndexSource `json:"index_source"`
	PeersPerWorker int                  `json:"min_peers_per_worker"`
	PeersPerRelay  int                  `json:"min_peers_per_relay"`
	// Relays are those of the fleet; Workers count once for each service.
	Relays  int `json:"relays"`
	Workers int `json:"workers"`
	// RelaysPerService is how many serve a service, on average.
	RelaysPerService float64 `json:"relays_per_service"`
	Connections      int     `json:"connections"`
	// WorkersPerRelay and MeanWorkersPerRelay are connections of one relay of the fleet, those
	// that serve no service included.
	WorkersPerRelay     MinMax  `json:"workers_per_relay"`
	MeanWorkersPerRelay float64 `json:"mean_workers_per_relay"`
	// HopShare is the share of requests that take a hop to another relay, if all relays and all
	// services get equally many.
	HopShare float64 `json:"hop_share"`
	// LeastLoaded and MostLoaded are the expected load of a worker ÷ the load that its weight
	// asks for, if all relays of a service get equally many requests.
	LeastLoaded float64 `json:"least_loaded"`
	MostLoaded  float64 `json:"most_loaded"`
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
	// Refused are the workers whose offers this relay does not use, with the reason.
	Refused map[string]string `json:"refused,omitempty"`
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
