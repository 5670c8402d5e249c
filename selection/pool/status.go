package pool

import (
	"slices"
	"strings"
	"time"
)

// Status shows a pool to people and to the admin API.
type Status struct {
	// Primaries, in turn, Backups, in order of promotion, and Joining, being
	// connected.
	Primaries, Backups, Joining []string
	// Candidates, best first.
	Candidates []string
	// Reach is how far candidates may be.
	Reach Tier
	// Peers are all of them, by id.
	Peers []PeerStatus
	// Bindings is the number of keys that stick to a peer.
	Bindings int
	// Connections counts them by state.
	Connections Connections
}

// Connections counts connections by state.
type Connections struct {
	Opening  int // being opened
	Primary  int // open, of a primary
	Backup   int // open, of a backup
	Draining int // ending their last requests
}

// Total is all of them.
func (c Connections) Total() int { return c.Opening + c.Primary + c.Backup + c.Draining }

// Health is how a peer does.
type Health string

// What the health of a peer can be.
const (
	Unknown   Health = "unknown"   // nothing was asked of it yet
	Healthy   Health = "healthy"   //
	Degraded  Health = "degraded"  // more failures than the threshold, though not surely
	Unhealthy Health = "unhealthy" // it would be evicted, but who would take over?
	Out       Health = "evicted"   // evicted, or not to be connected to
)

// PeerStatus shows one peer.
type PeerStatus struct {
	Peer
	Tier        Tier
	Role        Role
	Health      Health
	Weight      float64       // in the ranking
	Latency     time.Duration // average, 0 before the first answer
	Percentile  time.Duration // the 99th of the last 100, 0 before the tenth
	Estimate    time.Duration // what draws compare
	ErrorRate   float64       // of recent requests
	Consecutive int           // failures since the last answer
	InFlight    int
	Connections int
	Requests    uint64    // since it became a peer
	Failures    uint64    // of these
	Reason      string    // why it was evicted last
	OutUntil    time.Time // zero unless it is evicted
}

// Status describes the table. It allocates: not for the path of a request.
func (t *Table) Status(now time.Time) Status {
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
			InFlight: inFlight[p], Connections: p.links, Requests: p.requests, Failures: p.failures, Reason: p.reason, OutUntil: p.barredUntil,
		}
		if p.member != nil {
			ps.Role = p.member.role
		}
		s.Peers = append(s.Peers, ps)
	}
	slices.SortFunc(s.Peers, func(a, b PeerStatus) int { return strings.Compare(a.ID, b.ID) })
	return s
}

func (t *Table) healthOf(p *peer) Health {
	switch {
	case p.barred():
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

func (t *Table) connections() Connections {
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
