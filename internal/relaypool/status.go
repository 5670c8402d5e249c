package relaypool

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/outlier"
)

// Peer is one process that the pool can connect to.
type Peer struct {
	// ID is the stable name of the peer, not empty. Ranking and statistics use the ID.
	ID string
	// Address is passed to the function that opens the connection. A peer that returns
	// with another address is a new peer.
	Address string
	// Instance distinguishes successive processes with the same ID, if the caller knows
	// them: a peer with another instance is a new peer, and the statistics of the old one
	// are discarded. The empty string is a valid instance.
	Instance string
	// Datacenter and Region are the place of the peer; empty values match nothing.
	Datacenter, Region string
}

// tier returns how near the peer is. It is computed at each use, because a peer may move.
func (p *Peer) tier(datacenter, region string) affinity.Tier {
	return affinity.Place{Datacenter: datacenter, Region: region}.Tier(affinity.Place{Datacenter: p.Datacenter, Region: p.Region})
}

// peer is a peer with its statistics in a table.
type peer struct {
	Peer
	health health
	member *member // its place in the pool, or the place that it is being connected for
	links  int     // its connections, including opening and draining ones

	carries int // how many requests a connection carried when it was full last, 0 if that is not known

	requests, failures uint64 // since the peer was added

	backoff      outlier.Backoff // of evictions for its health
	evictedUntil time.Time       // end of the eviction, zero if the peer is not evicted
	recallAt     time.Time       // after a failed connection, the earliest time of the next one
	reason       string          // why it was evicted last
}

// same reports whether q is the same process as p.
func (p *Peer) same(q Peer) bool {
	return p.ID == q.ID && p.Address == q.Address && p.Instance == q.Instance
}

func (p *peer) evicted() bool { return !p.evictedUntil.IsZero() }

func checkPeers(peers []Peer) error {
	var errs []error
	seen := make(map[string]bool, len(peers))
	for _, p := range peers {
		switch {
		case p.ID == "":
			errs = append(errs, fmt.Errorf("pool: the peer at %q has no id: give every peer a stable one", p.Address))
		case seen[p.ID]:
			errs = append(errs, fmt.Errorf("pool: peer %q is given twice: list each once", p.ID))
		}
		seen[p.ID] = true
	}
	return errors.Join(errs...)
}

// Status describes a pool for operators and the admin API.
type Status struct {
	// Primaries are in the order of their turns, Backups in the order of promotion;
	// Joining are being connected.
	Primaries, Backups, Joining []string
	// Candidates, best first.
	Candidates []string
	// Reach is the farthest tier that candidates may be in.
	Reach affinity.Tier
	// Peers are all peers, sorted by id.
	Peers []PeerStatus
	// Bindings is the number of keys that are bound to a peer.
	Bindings int
	// Connections are the numbers of connections by state.
	Connections Connections
}

// Connections counts connections by state.
type Connections struct {
	Opening  int // being opened
	Primary  int // open, of a primary
	Backup   int // open, of a backup
	Draining int // waiting for their last requests to end
}

// Total returns the number of all connections.
func (c Connections) Total() int { return c.Opening + c.Primary + c.Backup + c.Draining }

// Health is the health of a peer.
type Health string

// The values of Health.
const (
	Unknown   Health = "unknown"   // no request has been sent to the peer yet
	Healthy   Health = "healthy"   //
	Degraded  Health = "degraded"  // failure share above the threshold, but not significantly
	Unhealthy Health = "unhealthy" // would be evicted, but no other peer can take over
	Out       Health = "evicted"   // evicted, or the last connection attempt failed
)

// PeerStatus describes one peer.
type PeerStatus struct {
	Peer
	Tier        affinity.Tier
	Role        Role
	Health      Health
	Weight      float64       // in the ranking
	Latency     time.Duration // average, 0 before the first answer
	Percentile  time.Duration // the 99th, of the last 100 answers; 0 before the tenth
	Estimate    time.Duration // compared by draws
	ErrorRate   float64       // of recent requests
	Consecutive int           // failures since the last answer
	InFlight    int
	Connections int
	Requests    uint64    // since the peer was added
	Failures    uint64    // how many of Requests failed
	Reason      string    // why it was evicted last
	OutUntil    time.Time // zero unless it is evicted
}

// Status describes the table. It allocates, so do not call it on the path of a request.
func (t *table) Status(now time.Time) Status {
	t.advance(now)
	s := Status{Reach: t.reach, Bindings: t.bindings.order.Len(), Connections: t.connections()}
	names := func(members []*member) (ids []string) {
		for _, m := range members {
			ids = append(ids, m.peer.ID)
		}
		return ids
	}
	s.Primaries, s.Backups, s.Joining = names(t.primaries), names(t.backups), names(t.joining)
	for _, p := range t.candidates {
		s.Candidates = append(s.Candidates, p.ID)
	}
	l := t.latencies()
	inFlight := map[*peer]int{}
	for _, link := range t.links {
		inFlight[link.peer] += link.inFlight
	}
	for _, p := range t.peers {
		h := &p.health
		ps := PeerStatus{
			Peer: p.Peer, Tier: p.tier(t.cfg.Datacenter, t.cfg.Region), Health: t.healthOf(p),
			Weight: l.weight(p), Latency: h.latency, Percentile: h.p99, Estimate: l.estimate(p),
			ErrorRate: h.errorRate(t.now), Consecutive: h.consecutive,
			InFlight: inFlight[p], Connections: p.links, Requests: p.requests, Failures: p.failures, Reason: p.reason, OutUntil: p.evictedUntil,
		}
		if p.member != nil {
			ps.Role = p.member.role
		}
		s.Peers = append(s.Peers, ps)
	}
	slices.SortFunc(s.Peers, func(a, b PeerStatus) int { return strings.Compare(a.ID, b.ID) })
	return s
}

func (t *table) healthOf(p *peer) Health {
	switch {
	case p.evicted():
		return Out
	case p.health.samples == 0 && p.health.consecutive == 0:
		return Unknown
	case p.health.consecutive > t.cfg.ConsecutiveFailures:
		return Unhealthy
	case p.health.errorRate(t.now) > t.cfg.ErrorRateThreshold:
		return Degraded
	}
	return Healthy
}

func (t *table) connections() Connections {
	var c Connections
	for _, l := range t.links {
		switch {
		case !l.open:
			c.Opening++
		case l.member == nil:
			c.Draining++
		case l.member.role == Primary:
			c.Primary++
		default:
			c.Backup++
		}
	}
	return c
}

type Kind uint8

// The kinds of event.
const (
	PeerAdded         Kind = iota // Peer may become a candidate
	PeerRemoved                   // Peer was removed by Update
	CandidatesChanged             // the candidates changed for Reason; Peer is empty
	Chosen                        // Peer was drawn, and a connection to it is being opened
	Connected                     // Peer is connected and has a place with Role
	ConnectFailed                 // opening a connection to Peer failed with Err
	Evicted                       // Peer lost its place for Reason
	Promoted                      // Peer, a backup, became a primary
	Refreshed                     // Peer's old connections were replaced by a new one for Reason
	Readmitted                    // an evicted Peer may become a candidate again
)

var kindNames = [...]string{
	"peer added", "peer removed", "candidates changed", "chosen", "connected", "connecting failed",
	"evicted", "promoted", "refreshed", "readmitted",
}

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", k)
}

// Reason is the reason of an event. The values are labels of metrics.
type Reason string

// Reasons of Evicted and Refreshed.
const (
	ErrorRate                  = Reason(outlier.ErrorRate)
	ConsecutiveFailures        = Reason(outlier.FailuresInARow)
	Latency             Reason = "latency"
	Stale               Reason = "stale"    // MaxAge was reached
	Lost                Reason = "lost"     // the last connection broke or takes no more requests
	Removed             Reason = "removed"  // Update removed the peer
	Locality            Reason = "locality" // nearer peers are available again
	Surplus             Reason = "surplus"  // fewer peers share the requests
)

// Reasons of CandidatesChanged.
const (
	byAddition Reason = "peer_added"
	byRemoval  Reason = "peer_removed"
	byMove     Reason = "peer_moved" // to another datacenter or region
	byHealth   Reason = "health_change"
)

// Role is the place of a peer in the pool.
type Role uint8

// The roles.
const (
	NoRole Role = iota // not in the pool, or still being connected
	Primary
	Backup
)

var roleNames = [...]string{"none", "primary", "backup"}

func (r Role) String() string {
	if int(r) < len(roleNames) {
		return roleNames[r]
	}
	return fmt.Sprintf("role(%d)", r)
}

// Event is one change in the pool.
type Event struct {
	Time   time.Time
	Kind   Kind
	Peer   string        // the peer's id
	Tier   affinity.Tier // of a Chosen peer
	Role   Role          // the peer's current role; for Evicted, the role it lost
	Reason Reason
	Detail string // text for operators
	Err    error
}
