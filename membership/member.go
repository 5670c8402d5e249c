package membership

import (
	"fmt"
	"slices"
)

// Role is what a member does in the fleet.
type Role string

// The roles of gossip members. A client is never a member.
const (
	RoleRelay  Role = "relay"
	RoleGate   Role = "gate"
	RoleWorker Role = "worker"
)

var roles = []Role{RoleRelay, RoleGate, RoleWorker}

// Valid reports whether r is one of the three roles.
func (r Role) Valid() bool { return slices.Contains(roles, r) }

// Member is one process of the cluster as this node knows it. It is a plain
// value: copying it is safe, and nothing behind it changes.
type Member struct {
	// ID is the stable name the operator chose; it survives restarts.
	ID string `json:"id"`
	// Epoch is the boot time in Unix milliseconds. Of two instances with one
	// ID the higher epoch is the live one.
	Epoch uint64 `json:"epoch"`
	// Role is relay, gate or worker.
	Role Role `json:"role"`
	// Cluster and Environment are always this node's own: a member of another
	// cluster never appears in a snapshot.
	Cluster     string `json:"cluster"`
	Environment string `json:"environment"`
	// Datacenter and Region place the member; empty when unknown.
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
	// Leaving is set between the member's own announcement that it goes and
	// the moment it is gone.
	Leaving bool `json:"leaving,omitempty"`
}

// Instance is the name that is unique to one boot of one member.
func (m Member) Instance() string { return instanceName(m.ID, m.Epoch) }

func instanceName(id string, epoch uint64) string { return fmt.Sprintf("%s.%d", id, epoch) }

// IDs lists the ids of members, in their order.
func IDs(members []Member) []string {
	ids := make([]string, len(members))
	for i, m := range members {
		ids[i] = m.ID
	}
	return ids
}
