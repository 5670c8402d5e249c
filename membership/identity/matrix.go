package identity

import (
	"fmt"
	"slices"
)

// The connection matrix determines which role may open a connection to which, and for what. It
// applies to the data plane; gossip has a separate policy. An empty cell is a refusal, so
// everything not listed is refused.
//
// Rows are initiators, columns targets, both in the order of roles. submit sends a request,
// forward passes it on to the relay that serves it, dispatch sends it to the worker that
// answers it. peer is communication between members of the same role, progress is a worker's
// report on its work. push and report send data back; in practice they use connections that
// the other side opened. An observer is a caller that goes to workers directly; it answers
// nothing, so its column is empty.
var matrix = [len(roles)][len(roles)]string{
	/* client   */ {"", "submit", "submit", "", ""},
	/* gate     */ {"push", "peer", "forward", "", ""},
	/* relay    */ {"push", "report", "peer", "dispatch", ""},
	/* worker   */ {"", "", "progress", "", ""},
	/* observer */ {"", "submit", "submit", "dispatch", ""},
}

// allowed reports whether initiator may connect to target, and for what. A role that does
// not exist may not connect.
func allowed(initiator, target Role) (action string, ok bool) {
	i, t := initiator.index(), target.index()
	if i < 0 || t < 0 {
		return "", false
	}
	return matrix[i][t], matrix[i][t] != ""
}

// targets returns the roles that initiator may connect to.
func targets(initiator Role) []Role {
	var out []Role
	for _, t := range roles {
		if _, ok := allowed(initiator, t); ok {
			out = append(out, t)
		}
	}
	return out
}

// ConnectionMatrix returns the matrix that every policy applies, as initiator → target →
// action, without the connections that it refuses.
func ConnectionMatrix() map[Role]map[Role]string {
	all := make(map[Role]map[Role]string, len(roles))
	for _, i := range roles {
		all[i] = make(map[Role]string, len(roles))
		for _, t := range targets(i) {
			all[i][t], _ = allowed(i, t)
		}
	}
	return all
}

// direction is which side opened a connection.
type direction string

// The directions.
const (
	// inbound: the peer opened it; the peer is the TLS client.
	inbound direction = "inbound"
	// outbound: we opened it; the peer is the TLS server.
	outbound direction = "outbound"
)

// Mode is the purpose of a policy.
type Mode uint8

// The modes.
const (
	// DataPlane applies the connection matrix.
	DataPlane Mode = iota
	// gossip admits any member (every role but client) in either direction and does not use the
	// matrix: gossip streams are open between any two members of one cluster.
	gossip
	// Hello admits every certificate of our authorities, whatever its claims: a hello after the
	// handshake checks membership, because the initiator never learns the reason of a refusal
	// in the handshake itself.
	Hello
)

// Policy decides which peers are admitted. It is a plain value, safe for concurrent use.
// The zero policy refuses every peer.
type Policy struct {
	// Self holds the claims of this process's own certificate: see Source.Policy.
	Self Claims
	// Mode is DataPlane by default.
	Mode Mode
	// Only further restricts the roles of the peer, for a listener that serves one purpose; empty:
	// all roles that Mode allows.
	Only []Role
}

// Check checks the claims of a peer that opened the connection: cluster, then environment,
// then the role. The error is a [RefusalError] without an address.
func (p Policy) Check(peer Claims) error { return p.check(peer, inbound) }

func (p Policy) check(peer Claims, direction direction) error {
	refuse := func(field Reason, ours, theirs string) error {
		return &RefusalError{Field: field, Ours: ours, Theirs: theirs, Node: peer.Node}
	}
	switch {
	case p.Mode == Hello:
		return nil
	case p.Self.Cluster == "" || peer.Cluster != p.Self.Cluster:
		return refuse(reasonCluster, p.Self.Cluster, peer.Cluster)
	case p.Self.Environment == "" || peer.Environment != p.Self.Environment:
		return refuse(reasonEnvironment, p.Self.Environment, peer.Environment)
	case p.Mode == gossip && !peer.Role.Member():
		return refuse(reasonRole, "gate, relay, worker or observer", string(peer.Role))
	case p.Mode == gossip && !p.Self.Role.Member():
		return refuse(reasonRole, string(p.Self.Role)+", which takes no part in gossip", string(peer.Role))
	case p.Mode > Hello:
		return refuse(reasonMatrix, fmt.Sprintf("unknown policy mode %d", p.Mode), string(peer.Role))
	}
	if p.Mode == DataPlane {
		initiator, target := p.Self.Role, peer.Role
		if direction != outbound {
			initiator, target = target, initiator
		}
		if _, ok := allowed(initiator, target); !ok {
			return &RefusalError{
				Field: reasonMatrix, Ours: string(p.Self.Role), Theirs: string(peer.Role), Node: peer.Node,
				Cause: fmt.Errorf("a %s may connect to: %s", initiator, joinRoles(targets(initiator))),
			}
		}
	}
	if len(p.Only) > 0 && !slices.Contains(p.Only, peer.Role) {
		return refuse(reasonRole, joinRoles(p.Only), string(peer.Role))
	}
	return nil
}

// Expected is what is known about the peer from elsewhere, for example from gossip. Empty
// fields are not compared.
type Expected struct {
	// Node, Role and Datacenter are compared with the certificate.
	Node       string
	Role       Role
	Datacenter string
	// Addr is the address that was dialled, IP:port. It is not compared; it is for the text of a
	// refusal.
	Addr string
}

// check compares the claims of a certificate with the expectation: id, then role, then
// datacenter. The error is a [RefusalError] with the expectation as Ours. A certificate without a datacenter matches any datacenter.
func (e Expected) check(peer Claims) error {
	refuse := func(field Reason, ours, theirs string) error {
		return &RefusalError{Field: field, Ours: ours, Theirs: theirs, Node: peer.Node, Addr: e.Addr}
	}
	switch {
	case e.Node != "" && e.Node != peer.Node:
		return refuse(reasonNode, e.Node, peer.Node)
	case e.Role != "" && e.Role != peer.Role:
		return refuse(reasonRole, string(e.Role), string(peer.Role))
	case e.Datacenter != "" && peer.Datacenter != "" && e.Datacenter != peer.Datacenter:
		return refuse(reasonDatacenter, e.Datacenter, peer.Datacenter)
	}
	return nil
}
