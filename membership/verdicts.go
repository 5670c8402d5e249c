package membership

import (
	"fmt"
	"time"

	"github.com/ringway/ringway/membership/identity"
)

// verdict is what a certificate says of one instance. The event loop holds it
// against what the instance gossips.
type verdict struct {
	instance string
	claims   identity.Claims
}

// shown is a certificate as it was last shown.
type shown struct {
	claims identity.Claims
	at     time.Time
}

// shownFor is how long a certificate counts of an instance that gossip does not,
// or no longer, tell of: the handshake comes before the news, by more than the
// time between two snapshots when the member is far away.
const shownFor = 10 * time.Minute

// vouched takes in what a handshake has shown. It never blocks: when the loop is
// far behind, the next handshake with that member says it again.
func (n *Node) vouched(peer Peer, claims identity.Claims) {
	select {
	case n.verdicts <- verdict{instanceName(peer.ID, peer.Epoch), claims}:
	default:
	}
}

// quarantine keeps members out of the snapshots whose gossip disagrees with
// their certificate: whoever holds a gossip key can forge gossip, not a
// certificate. It belongs to the event loop.
type quarantine struct {
	certified map[string]shown  // by instance, as shown in a handshake
	held      map[string]string // instance to reason, of those kept out
}

func newQuarantine() *quarantine {
	return &quarantine{certified: make(map[string]shown), held: make(map[string]string)}
}

// note reports whether the verdict is news.
func (q *quarantine) note(v verdict, now time.Time) bool {
	old, known := q.certified[v.instance]
	q.certified[v.instance] = shown{v.claims, now}
	return !known || old.claims != v.claims
}

// filter returns the members that may be shown and, of the others, those that
// were shown until now, with the reason.
func (q *quarantine) filter(members []Member, now time.Time) (trusted []Member, caught map[Member]string) {
	alive := make(map[string]bool, len(members))
	trusted = members[:0]
	for _, m := range members {
		instance := m.Instance()
		alive[instance] = true
		reason := disagreement(m, q.certified[instance].claims)
		if reason == "" {
			delete(q.held, instance)
			trusted = append(trusted, m)
			continue
		}
		if q.held[instance] != reason {
			if caught == nil {
				caught = make(map[Member]string)
			}
			caught[m] = reason
			q.held[instance] = reason
		}
	}
	for instance, c := range q.certified {
		if !alive[instance] && now.Sub(c.at) > shownFor {
			delete(q.certified, instance)
			delete(q.held, instance)
		}
	}
	return trusted, caught
}

// Quarantined is a member that gossip knows and no snapshot shows.
type Quarantined struct {
	// ID is what it gossips to be, Reason where its certificate disagrees.
	ID     string `json:"id"`
	Reason string `json:"reason"`
}

// Quarantined lists the members kept out of the newest snapshot, in no order. The
// slice is not to be changed. One atomic load.
func (n *Node) Quarantined() []Quarantined {
	if held := n.held.Load(); held != nil {
		return *held
	}
	return nil
}

// among lists those of the members that are kept out.
func (q *quarantine) among(members []Member) []Quarantined {
	var out []Quarantined
	for _, m := range members {
		if reason := q.held[m.Instance()]; reason != "" {
			out = append(out, Quarantined{m.ID, reason})
		}
	}
	return out
}

// disagreement says where gossip and certificate differ; "" where they do not. A
// certificate that names no datacenter agrees with any, and no certificate seen
// yet with everything.
func disagreement(m Member, c identity.Claims) string {
	switch {
	case c == identity.Claims{}:
		return ""
	case m.ID != c.Node:
		return fmt.Sprintf("it gossips the id %q, its certificate says %q", m.ID, c.Node)
	case string(m.Role) != string(c.Role):
		return fmt.Sprintf("it gossips the role %q, its certificate says %q", m.Role, c.Role)
	case c.Datacenter != "" && m.Datacenter != c.Datacenter:
		return fmt.Sprintf("it gossips the datacenter %q, its certificate says %q", m.Datacenter, c.Datacenter)
	}
	return ""
}
