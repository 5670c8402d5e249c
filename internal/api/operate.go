package api

import (
	"slices"
	"time"

	"github.com/ringway/ringway/internal/settings"
	"github.com/ringway/ringway/membership"
)

// KeysRequest is the body of POST /api/v1/keys.
type KeysRequest struct {
	// Operation is install, use or remove.
	Operation membership.KeyOperation `json:"operation"`
	// Argument is the key for install, a fingerprint for the others.
	Argument string `json:"argument"`
}

// Keys is the answer to both methods.
type Keys struct {
	Members []membership.KeyResult `json:"members"`
	Error   string                 `json:"error,omitempty"`
}

// Drain is the answer to POST /api/v1/drain and /api/v1/undrain.
type Drain struct {
	Relay    string `json:"relay"`
	Draining bool   `json:"draining"`
	// Since is when the drain began; absent without one.
	Since time.Time `json:"since,omitzero"`
	// InFlight counts the requests of all services, including those of other relays.
	InFlight int64 `json:"in_flight"`
}

// Reload is the answer to POST /api/v1/reload.
type Reload struct {
	Relay string `json:"relay"`
	// Applied are in effect now, NeedsRestart at the next start.
	Applied      []settings.Change `json:"applied"`
	NeedsRestart []settings.Change `json:"needs_restart"`
	// NotInUse are changes of the plan that have no effect, because the relay plans with the
	// settings of the fleet; Reason has their version and the remedy.
	NotInUse []settings.Change `json:"not_in_use,omitempty"`
	Reason   string            `json:"reason,omitempty"`
}

// Block refuses the requests of a caller to a service; one of the two may be *. An IPv6 address is
// blocked with its /64, which Caller then is.
type Block struct {
	Caller  string `json:"caller"`
	Service string `json:"service"`
	// Until is when it ends; absent if it stays.
	Until  time.Time `json:"until,omitzero"`
	Reason string    `json:"reason,omitempty"`
	Origin string    `json:"origin"` // file or command
	// Refused counts the requests that it has refused.
	Refused uint64 `json:"refused"`
}

// Blocks is the answer to GET /api/v1/blocks: the blocks in effect; to POST: the one that was
// added or removed.
type Blocks struct {
	Relay  string  `json:"relay"`
	Blocks []Block `json:"blocks"`
}

// The operations of a BlockRequest.
const (
	AddBlock    = "add"
	RemoveBlock = "remove"
)

// BlockRequest is the body of POST /api/v1/blocks.
type BlockRequest struct {
	Operation string `json:"operation"`
	Caller    string `json:"caller"`
	Service   string `json:"service"`
	// ForMs is how long an added block stays, in milliseconds.
	ForMs  int64  `json:"for_ms,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// DefaultRebalanceRate is how many sessions per second a rebalance asks to go.
const DefaultRebalanceRate = 10

// The states of a Rebalance.
const (
	RebalancePlanned = "planned"
	RebalanceRunning = "running"
	RebalanceDone    = "done"
)

// Rebalance is the answer to GET /api/v1/services/{name}/rebalance, and each line of the
// answer to POST: the plan, the progress every second, and the end.
type Rebalance struct {
	Relay   string `json:"relay"`
	Service string `json:"service"`
	// Role of the relay; only an affine one has sessions with workers.
	Role  string `json:"role"`
	State string `json:"state"`
	// Rate is in sessions per second.
	Rate float64 `json:"rate"`
	// Asked counts the sessions that were asked to go.
	Asked   int                `json:"asked"`
	Workers []RebalancedWorker `json:"workers"`
	// AskInstead are the relays that have the sessions of a relay that forwards.
	AskInstead []string `json:"ask_instead,omitempty"`
	// Reason is why it has ended.
	Reason string `json:"reason,omitempty"`
}

// RebalancedWorker is a worker of the relay's range.
type RebalancedWorker struct {
	Worker string `json:"worker"`
	// Weight is its part of new sessions, relative to the others.
	Weight float64 `json:"weight"`
	// Sessions are those that the relay has open to it, Share how many it would have if the
	// sessions followed the weights, Surplus how many a rebalance asks to go.
	Sessions int `json:"sessions"`
	Share    int `json:"share"`
	Surplus  int `json:"surplus"`
	// Bound sessions would come back to the same worker, NoClose have no close frame that
	// asks their clients to go.
	Bound   int `json:"bound"`
	NoClose int `json:"no_close"`
	// Asked counts the sessions that were asked to go.
	Asked int `json:"asked"`
	// Out is why the worker gets no new sessions. Joining means that it gets few for some
	// seconds, because it has just joined; a rebalance waits for that.
	Out     string `json:"out,omitempty"`
	Joining bool   `json:"joining,omitempty"`
}

// Status is the severity of a finding of a check.
type Status string

// The statuses, from good to bad.
const (
	OK      Status = "ok"
	Warning Status = "warning"
	Failed  Status = "failed"
)

// Finding is one result of one check.
type Finding struct {
	// Check is the name of the check, Status its result.
	Check  string `json:"check"`
	Status Status `json:"status"`
	// Subject is the member or service concerned; empty for the whole cluster.
	Subject string `json:"subject,omitempty"`
	// Text is the finding, Cause its reason or consequence, Remedy what to do.
	Text   string `json:"text"`
	Cause  string `json:"cause,omitempty"`
	Remedy string `json:"remedy,omitempty"`
	// Page is the page of the manual, below the root of the repository.
	Page string `json:"page,omitempty"`
	// FollowsFrom is the check whose finding explains this one, which has no remedy of its own.
	FollowsFrom string `json:"follows_from,omitempty"`

	// Passing means that the finding may pass by itself, for example while gossip spreads.
	Passing bool `json:"-"`
}

// Report is the answer to GET /api/v1/check.
type Report struct {
	// Relay is the relay that checked, Time when, by its clock.
	Relay string    `json:"relay"`
	Time  time.Time `json:"time"`
	// Status is the worst of the findings.
	Status   Status    `json:"status"`
	Warnings int       `json:"warnings"`
	Failures int       `json:"failures"`
	Findings []Finding `json:"findings"` // in the order of the checks
}

// Passing reports whether there is a problem that may pass by itself.
func (r *Report) Passing() bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Status != OK && f.Passing })
}

// Counts are the requests of a relay since it started, and what it carries now.
type Counts struct {
	// Requests counts those that ended, Errors those of them that failed: a status of 500 or
	// above, an answer of the relay itself, or an answer that broke off.
	Requests uint64 `json:"requests"`
	Errors   uint64 `json:"errors"`
	InFlight int64  `json:"in_flight"`
	// Sessions are the TCP sessions that are open; they are in flight, too.
	Sessions int64 `json:"sessions"`
}

// Add adds the counts of another relay or service.
func (c *Counts) Add(other Counts) {
	c.Requests += other.Requests
	c.Errors += other.Errors
	c.InFlight += other.InFlight
	c.Sessions += other.Sessions
}

// Since returns the counts with only the requests after an earlier count. A count that is
// lower than before, because its service has vanished, gives 0.
func (c Counts) Since(earlier Counts) Counts {
	c.Requests -= min(earlier.Requests, c.Requests)
	c.Errors = min(c.Errors-min(earlier.Errors, c.Errors), c.Requests)
	return c
}

// Traffic is the answer to GET /api/v1/traffic: the counters of a relay. Two answers give
// the rates between them.
type Traffic struct {
	Relay string `json:"relay"`
	// UptimeMs is the time since the start of the relay in milliseconds.
	UptimeMs int64            `json:"uptime_ms"`
	Services []ServiceTraffic `json:"services"` // by name
}

// ServiceTraffic are the counters of one service at one relay.
type ServiceTraffic struct {
	Service string `json:"service"`
	Counts
	// Forwarded counts the requests among them that came from another relay, which counts them, too.
	Forwarded Counts `json:"forwarded"`
	// Workers is how many workers offer the service, Evicted are those that the relay has
	// evicted.
	Workers int      `json:"workers"`
	Evicted []string `json:"evicted,omitempty"`
	// Latency is a histogram of the time until an answer began; empty before the first
	// request. Answers counts all answers, also those slower than its last bucket; a relay
	// of an older release does not send it.
	Latency []LatencyBucket `json:"latency,omitempty"`
	Answers *uint64         `json:"answers,omitempty"`
	// Peers are the workers of the range, or the relays to forward to, for ?peers=1.
	Peers []Peer `json:"peers,omitempty"`
}

// OfClients returns the counts without the requests that another relay forwarded.
func (s *ServiceTraffic) OfClients() Counts {
	c := s.Counts.Since(s.Forwarded)
	c.InFlight = max(c.InFlight-s.Forwarded.InFlight, 0)
	c.Sessions = max(c.Sessions-s.Forwarded.Sessions, 0)
	return c
}

// LatencyBucket counts the requests whose answers began within UpToMs milliseconds, those
// of the buckets before included.
type LatencyBucket struct {
	UpToMs   float64 `json:"up_to_ms"`
	Requests uint64  `json:"requests"`
}

// Fleet is the answer to GET /api/v1/fleet: the traffic of all relays and gates, as one of
// them has collected it.
type Fleet struct {
	// Relay is the one that asked the others, WindowMs the time over which rates are
	// measured, in milliseconds.
	Relay    string         `json:"relay"`
	WindowMs int64          `json:"window_ms"`
	Relays   []FleetRelay   `json:"relays"`   // by ID, w2 before w10
	Services []FleetService `json:"services"` // by name
}

// FleetRelay is one relay or gate, also one that departed in the last hour.
type FleetRelay struct {
	ID    string      `json:"id"`
	Role  string      `json:"role"`
	State MemberState `json:"state"`
	// Answered reports whether the other fields are known. Problem is why they are not, or
	// what is missing.
	Answered bool   `json:"answered"`
	Problem  string `json:"problem,omitempty"`
	// Ready is the result of its /readyz, Reasons why it is not ready.
	Ready    bool     `json:"ready"`
	Reasons  []string `json:"reasons,omitempty"`
	Version  string   `json:"version,omitempty"`
	UptimeMs int64    `json:"uptime_ms"`
	// Counts are all requests of the relay, those that another relay forwarded included.
	Counts
	Rates
}

// FleetService is one service at all relays that answered. A request that is forwarded
// counts once, at the relay of the client.
type FleetService struct {
	Service string `json:"service"`
	// Relays is how many relays reported it, Workers the most workers that one of them knows.
	Relays  int `json:"relays"`
	Workers int `json:"workers"`
	// Evicted are the workers that a relay has evicted, by ID.
	Evicted []EvictedWorker `json:"evicted"`
	Counts
	Rates
}

// EvictedWorker is a worker and the relays that have evicted it.
type EvictedWorker struct {
	Worker string   `json:"worker"`
	Relays []string `json:"relays"`
}

// Rates are measured over a window.
type Rates struct {
	// Measured is false for a relay that did not answer at both ends of the window or began
	// within it.
	Measured          bool    `json:"measured"`
	RequestsPerSecond float64 `json:"requests_per_second"`
	ErrorsPerSecond   float64 `json:"errors_per_second"`
}

// Add adds the requests of a number of seconds.
func (r *Rates) Add(c Counts, seconds float64) {
	r.Measured = true
	r.RequestsPerSecond += float64(c.Requests) / seconds
	r.ErrorsPerSecond += float64(c.Errors) / seconds
}

// ErrorShare is the share of the requests that failed, 0 without requests.
func (r Rates) ErrorShare() float64 {
	if r.RequestsPerSecond <= 0 {
		return 0
	}
	return r.ErrorsPerSecond / r.RequestsPerSecond
}
