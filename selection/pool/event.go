package pool

import "time"

// Kind is what happened.
type Kind uint8

// The kinds of event.
const (
	PeerAdded         Kind = iota // it may become a candidate
	PeerRemoved                   // it is no peer any more
	CandidatesChanged             // Reason says why; Peer is empty
	Chosen                        // Peer was drawn, and a connection to it is being opened
	Connected                     // Peer is connected and has a place: Role
	ConnectFailed                 // Err says why
	Evicted                       // Peer lost its place: Reason
	Promoted                      // Peer was a backup and is a primary
	Refreshed                     // Peer's old connections were replaced by a new one: Reason
	Readmitted                    // an evicted Peer may become a candidate again
)

var kindNames = [...]string{
	"peer added", "peer removed", "candidates changed", "chosen", "connected", "connecting failed",
	"evicted", "promoted", "refreshed", "readmitted",
}

func (k Kind) String() string { return kindNames[k] }

// Reason is why. The values are labels of metrics.
type Reason string

// Why a peer lost its place, or its connections were replaced.
const (
	ErrorRate           Reason = "error_rate"
	ConsecutiveFailures Reason = "consecutive_failures"
	Latency             Reason = "latency"
	Stale               Reason = "stale"    // it was too old
	Lost                Reason = "lost"     // its last connection broke or takes no more requests
	Removed             Reason = "removed"  // it is no peer any more
	Locality            Reason = "locality" // nearer peers are there again
)

// Why the set of candidates changed.
const (
	ByAddition Reason = "peer_added"
	ByRemoval  Reason = "peer_removed"
	ByMove     Reason = "peer_moved" // to another datacenter or region
	ByHealth   Reason = "health_change"
)

// Role is the place of a peer in the pool.
type Role uint8

// The roles.
const (
	NoRole Role = iota // not in the pool, or only being connected to
	Primary
	Backup
)

var roleNames = [...]string{"none", "primary", "backup"}

func (r Role) String() string { return roleNames[r] }

// Event is one thing that happened to the pool.
type Event struct {
	Time   time.Time
	Kind   Kind
	Peer   string // its id
	Tier   Tier   // of a Chosen peer
	Role   Role   // the peer's now; of an Evicted one, the one it lost
	Reason Reason
	Detail string // for people
	Err    error
}
