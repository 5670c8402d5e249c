package statuspage

import (
	"time"

	"github.com/ringway/ringway/internal/api"
)

// Document is the state of one process at one moment. Texts may contain anything: the page
// escapes them.
type Document struct {
	// ID, Role and the other fields are those of the process.
	ID, Role, Cluster, Environment, Datacenter, Region string
	// Build is the version of the process.
	Build string
	// Now is the moment, from which the page counts ages.
	Now time.Time
	// Uptime is the time since the start of the process.
	Uptime time.Duration
	// Ready is the result of /readyz.
	Ready bool
	// Notices are sorted by importance, the most severe first.
	Notices []Notice
	// MembersChecksum and ServicesChecksum are equal on all members with the same view.
	MembersChecksum, ServicesChecksum string
	// Members are the members that are alive, and those that left or failed recently.
	Members []api.ListedMember

	// Fleet is the traffic of all relays and gates. Nil: they have not been asked yet, or the
	// process is a worker.
	Fleet *api.Fleet

	// Traffic is what this relay carried in the last window. Nil: it has not been measured yet,
	// or the process is a worker.
	Traffic *Traffic

	// Services are the services that a relay knows, by name. A worker has none.
	Services []Row
	// InFlight counts the requests in flight.
	InFlight int64
	// Focus is the service that the page shows in detail. Nil: none.
	Focus *Focus
	// Offers are the services of a worker. A relay has none.
	Offers []api.WorkerService
}

// Traffic is what a relay carried in a window, as relay top shows it.
type Traffic struct {
	Window   time.Duration
	Services []api.TopRow
	// Workers of the service that the page shows in detail, or relays if it is
	// forwarded.
	Workers []api.TopRow
	// Callers are those with the most requests, the most first. AllCallers counts the others,
	// too.
	Callers    []api.TopRow
	AllCallers int
}

// Severity is the severity of a notice.
type Severity string

// The severities, the most severe first.
const (
	Problem Severity = "problem" // clients notice, or will soon
	Warning Severity = "warning" // the margin is smaller than it should be
	Note    Severity = "note"    // for information
)

// Notice is a fact for the operator with its remedy.
type Notice struct {
	Severity Severity
	Text     string
	// Remedy is a sentence; empty if the operator can only wait.
	Remedy string
	// Runbook is the name of a page in docs/operations; empty: there is none.
	Runbook string
}

// Row is one row in the list of services.
type Row struct {
	api.ListedService
	// Index is the index of this relay among those that serve the service, -1 if it
	// forwards.
	Index    int
	Strategy string
}

// Focus is one service in detail.
type Focus struct {
	Row
	// Role is a sentence about the role of this relay for the service.
	Role string
	// Ring has the workers and the relays that connect to them.
	Ring Ring
	// Peers are the workers that this relay is connected to, or relays if it forwards.
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
	// Relays is how many relays connect to the worker according to the plan.
	Relays int
	// Mine: this relay is one of them.
	Mine bool
}

// Arc is the range of one relay.
type Arc struct {
	Relay string
	Self  bool
	// Absent: the relay has vanished, and its place is kept for some time.
	Absent bool
	Runs   []Run
}

// Run is Len workers from position Start on; after the last worker it continues with the
// first.
type Run struct{ Start, Len int }

// PeerState is the state of a worker, or of a relay that is forwarded to, as this relay
// sees it.
type PeerState string

// The states of peers. Each has its own shape on the ring.
const (
	Active      PeerState = "active"
	HalfOpen    PeerState = "half open"   // on probation after an eviction
	Evicted     PeerState = "evicted"     // gets no requests from this relay
	Draining    PeerState = "draining"    // gets no new requests
	Unreachable PeerState = "unreachable" // this relay cannot connect to it
	Absent      PeerState = "absent"      // vanished, its place is kept
	Connecting  PeerState = "connecting"  // no connection is open yet
	Backup      PeerState = "backup"      // connected, in reserve
	Candidate   PeerState = "candidate"   // not connected
)

// troubled reports whether the state needs the attention of an operator.
func (s PeerState) troubled() bool {
	switch s {
	case Active, Backup, Candidate:
		return false
	}
	return true
}

// Peer is one worker or relay that this relay sends requests to.
type Peer struct {
	api.Peer
	// State is the state that is most important for an operator.
	State PeerState
}
