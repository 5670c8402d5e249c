package membership

import (
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/membership/internal/gossip"
)

// Member is one process of the cluster as this node knows it. It is a plain value without
// pointers: copies are independent.
type Member struct {
	// ID is the stable name the operator chose; it survives restarts.
	ID string `json:"id"`
	// Epoch is the boot time in Unix milliseconds. Of two instances with one ID the one with
	// the higher epoch is current.
	Epoch uint64 `json:"epoch"`
	// Role is relay, gate, worker or observer.
	Role identity.Role `json:"role"`
	// Cluster and Environment are always this node's own: a member of another
	// cluster never appears in a snapshot.
	Cluster     string `json:"cluster"`
	Environment string `json:"environment"`
	// Datacenter and Region are the place of the member; empty if unknown.
	Datacenter string `json:"datacenter,omitempty"`
	Region     string `json:"region,omitempty"`
	// GossipAddr is the IP:port that memberlist uses.
	GossipAddr string `json:"gossip_addr"`
	// ForwardAddr is the IP:port on which a relay takes requests from other
	// relays (its peer listener); empty for workers.
	ForwardAddr string `json:"forward_addr,omitempty"`
	// AdminAddr is the IP:port of the admin API; empty when it is private.
	AdminAddr string `json:"admin_addr,omitempty"`
	// Version is the build version.
	Version string `json:"version,omitempty"`
	// ServiceNames are the services in the certificate with which the member proved its identity;
	// empty if the certificate names none, and without certificates.
	ServiceNames string `json:"service_names,omitempty"`
	// Leaving is true from the member's announcement that it leaves until it is gone.
	Leaving bool `json:"leaving,omitempty"`
	// Draining is true while an operator has taken the member out of rotation. It stays in the
	// plans.
	Draining bool `json:"draining,omitempty"`
	// Attached is true for a worker that does not gossip: relays that it has sessions with list it.
	// Its GossipAddr has its host, and the port 0.
	Attached bool `json:"attached,omitempty"`
}

// Instance returns the name of this instance, which is unique to one boot of one member.
func (m Member) Instance() string { return gossip.InstanceName(m.ID, m.Epoch) }

// IDs returns the ids of members, in their order.
func IDs(members []Member) []string {
	ids := make([]string, len(members))
	for i, m := range members {
		ids[i] = m.ID
	}
	return ids
}

// Peer is the other end of a stream, as described in its hello.
type Peer struct {
	ID    string
	Epoch uint64
	Role  identity.Role
	// Certified is true if a certificate of our authorities confirms id and role; otherwise
	// they are unverified claims.
	Certified bool
	// Addr is the remote address of the connection.
	Addr string

	tick uint64 // the peer's time, for package trust
}
