package identity

import (
	"slices"
	"strings"
)

// Role is what the holder of a certificate does in the fleet. The values equal
// those of package membership; client is added, which is never a gossip member.
type Role string

// The roles.
const (
	RoleClient Role = "client"
	RoleGate   Role = "gate"
	RoleRelay  Role = "relay"
	RoleWorker Role = "worker"
)

// The order is that of the matrix in the documentation.
var roles = [...]Role{RoleClient, RoleGate, RoleRelay, RoleWorker}

// Roles returns every role, in the order of the connection matrix.
func Roles() []Role { return slices.Clone(roles[:]) }

// Valid reports whether r is one of the four roles.
func (r Role) Valid() bool { return r.index() >= 0 }

// Member reports whether r may take part in gossip: every role but client.
func (r Role) Member() bool { return r.Valid() && r != RoleClient }

func (r Role) index() int { return slices.Index(roles[:], r) }

func joinRoles(rs []Role) string {
	if len(rs) == 0 {
		return "none"
	}
	names := make([]string, len(rs))
	for i, r := range rs {
		names[i] = string(r)
	}
	return strings.Join(names, ", ")
}
