package api

import "time"

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
