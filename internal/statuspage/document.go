package statuspage

import "time"

// Document is one process at one moment. Texts may be anything: the page escapes
// them.
type Document struct {
	// ID, Role and so on are those of the process that answers.
	ID, Role, Cluster, Environment, Datacenter, Region string
	// Build is its version.
	Build string
	// Uptime is since it started.
	Uptime time.Duration
	// Ready says what /readyz says.
	Ready bool
	// Notices are what an operator should know first, the worst first.
	Notices []Notice
	// MembersChecksum and ServicesChecksum are equal on all members that agree.
	MembersChecksum, ServicesChecksum string
	// Members are those that are there, and those that went lately.
	Members []Member

	// Services are those that a relay knows, by name. A worker has none.
	Services []Service
	// InFlight counts the requests under way.
	InFlight int64
	// Focus is the service that the page shows closely. Nil: none.
	Focus *Focus
	// Offers are what a worker offers. A relay has none.
	Offers []Offer
}

// Severity is how bad a notice is.
type Severity string

// The severities, the worst first.
const (
	Problem Severity = "problem" // clients notice, or will soon
	Warning Severity = "warning" // the margin is smaller than it should be
	Note    Severity = "note"    // good to know
)

// Notice is something that an operator should know, and what to do.
type Notice struct {
	Severity Severity
	Text     string
	// Remedy is a sentence; empty where waiting is all there is to do.
	Remedy string
	// Runbook is the name of a page of docs/operations; empty: there is none.
	Runbook string
}

// Member is one member of the cluster.
type Member struct {
	ID, Role   string
	State      MemberState
	Datacenter string
	Address    string
	Version    string
	// Age is since it started, by its own clock; for one that went, since then.
	Age time.Duration
	// Self is the process that answers.
	Self bool
}

// MemberState is how a member stands.
type MemberState string

// The states of members.
const (
	Alive   MemberState = "alive"
	Leaving MemberState = "leaving"
	Failed  MemberState = "failed"
	Left    MemberState = "left"
)

// Service is a line in the list of services.
type Service struct {
	Name string
	// Index is this relay's place among those that serve it, -1 when it forwards.
	Index int
	// Ready of the Endpoints take requests.
	Ready, Endpoints int
	// Range is the relay's run of workers; empty where there is none.
	Range string
	// Connects is how many workers it connects to.
	Connects int
	InFlight int64
	Strategy string
}

// Focus is one service, closely.
type Focus struct {
	Service
	// Role is one sentence about what this relay does for the service.
	Role string
	// Ring has the workers, and who connects to them.
	Ring Ring
	// Peers are what this relay is connected to: workers, or relays when it forwards.
	Peers []Peer
	// Forwarding: Peers are relays.
	Forwarding bool
}

// Ring is the workers of a service and the relays that connect to them.
type Ring struct {
	// Minimum is how many relays each worker should have.
	Minimum int
	// Workers are in ring order.
	Workers []RingWorker
	// Arcs are the relays that serve the service, by index.
	Arcs []Arc
}

// RingWorker is a worker on the ring.
type RingWorker struct {
	ID    string
	State PeerState
	// Relays are how many relays the plan connects to it.
	Relays int
	// Mine: this relay is one of them.
	Mine bool
}

// Arc is what one relay connects to.
type Arc struct {
	Relay string
	Self  bool
	// Absent: the relay has vanished, and keeps its place for a while.
	Absent bool
	Runs   []Run
}

// Run is Len workers from position Start on, past the last one to the first.
type Run struct{ Start, Len int }

// PeerState is how a worker, or a relay that is forwarded to, stands with this relay.
type PeerState string

// The states of peers. Each has its own shape on the ring.
const (
	Active      PeerState = "active"
	HalfOpen    PeerState = "half open"   // on probation
	Evicted     PeerState = "evicted"     // gets no requests from this relay
	Draining    PeerState = "draining"    // takes nothing new
	Unreachable PeerState = "unreachable" // this relay cannot connect to it
	Absent      PeerState = "absent"      // vanished, its place is kept
	Connecting  PeerState = "connecting"  // no connection is open yet
	Backup      PeerState = "backup"      // connected, in reserve
	Candidate   PeerState = "candidate"   // not connected
)

// troubled reports whether an operator should look at it.
func (s PeerState) troubled() bool {
	switch s {
	case Active, Backup, Candidate:
		return false
	}
	return true
}

// Peer is one worker or relay that this relay sends requests to.
type Peer struct {
	ID, Address string
	State       PeerState
	// Tier is how near it is: same_dc, same_region, global; empty where unknown.
	Tier string
	// Weight is the share of this relay's traffic that it should get, 0 to 1.
	Weight float64
	// Latency is a moving average, 0 before the first answer.
	Latency time.Duration
	// InFlight counts this relay's own requests.
	InFlight int
	Requests uint64
	// ErrorRate is that of recent requests, 0 to 1.
	ErrorRate float64
	// Score is the cost of one more request: lower is better.
	Score float64
	// LastReason is why it was evicted last; empty: it never was.
	LastReason string
}

// Offer is a service that a worker offers.
type Offer struct {
	Name, Address, Protocol string
	// State is offered, draining, unhealthy and so on.
	State string
	// Good: State is what it should be.
	Good    bool
	Drained bool
	Check   string
	Weight  int
	// Since is how long it has been in that state.
	Since time.Duration
	// Error is why it is unhealthy.
	Error string
}
