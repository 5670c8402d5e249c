package api

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
	// Forwarded are those of the counts that came from another relay, which counts them, too.
	Forwarded Counts `json:"forwarded"`
	// Workers is how many workers offer the service, Evicted are those that the relay has
	// evicted.
	Workers int      `json:"workers"`
	Evicted []string `json:"evicted,omitempty"`
	// Latency is a histogram of the time until an answer began; empty before the first
	// request.
	Latency []LatencyBucket `json:"latency,omitempty"`
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
