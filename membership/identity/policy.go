package identity

import (
	"fmt"
	"slices"
)

// Direction says who opened a connection.
type Direction string

// The directions.
const (
	// Inbound: the other end opened it; it is the TLS client.
	Inbound Direction = "inbound"
	// Outbound: we opened it; the other end is the TLS server.
	Outbound Direction = "outbound"
)

// Mode is what a policy is for.
type Mode uint8

// The modes.
const (
	// DataPlane applies the connection matrix.
	DataPlane Mode = iota
	// Gossip admits any member (gate, relay, worker) in either direction and
	// does not ask the matrix: gossip streams are open between any two members
	// of one cluster.
	Gossip
	// Hello admits every certificate of our authorities, whatever it says: who
	// belongs here is judged by a hello behind the handshake, because a refusal
	// in the handshake itself never tells the initiator why.
	Hello
)

// Policy decides who may be at the other end. It is a plain value, safe for
// concurrent use. The zero policy refuses everybody.
type Policy struct {
	// Self is this process, as its own certificate has it: see Source.Policy.
	Self Claims
	// Mode is DataPlane unless said.
	Mode Mode
	// Only narrows the roles of the other end further, for a listener that
	// serves one purpose; empty: whatever Mode allows.
	Only []Role
}

// Check judges the other end's claims: cluster, then environment, then the role.
// The error is a [RefusalError] without an address.
func (p Policy) Check(peer Claims, direction Direction) error {
	refuse := func(field Reason, ours, theirs string) error {
		return &RefusalError{Field: field, Ours: ours, Theirs: theirs, Node: peer.Node}
	}
	switch {
	case p.Mode == Hello:
		return nil
	case p.Self.Cluster == "" || peer.Cluster != p.Self.Cluster:
		return refuse(ReasonCluster, p.Self.Cluster, peer.Cluster)
	case p.Self.Environment == "" || peer.Environment != p.Self.Environment:
		return refuse(ReasonEnvironment, p.Self.Environment, peer.Environment)
	case p.Mode == Gossip && !peer.Role.Member():
		return refuse(ReasonRole, "gate, relay or worker", string(peer.Role))
	case p.Mode == Gossip && !p.Self.Role.Member():
		return refuse(ReasonRole, string(p.Self.Role)+", which takes no part in gossip", string(peer.Role))
	case p.Mode > Hello:
		return refuse(ReasonMatrix, fmt.Sprintf("unknown policy mode %d", p.Mode), string(peer.Role))
	}
	if p.Mode == DataPlane {
		initiator, target := p.Self.Role, peer.Role
		if direction != Outbound {
			initiator, target = target, initiator
		}
		if _, ok := Allowed(initiator, target); !ok {
			return &RefusalError{
				Field: ReasonMatrix, Ours: string(p.Self.Role), Theirs: string(peer.Role), Node: peer.Node,
				Cause: fmt.Errorf("a %s may connect to: %s", initiator, joinRoles(Targets(initiator))),
			}
		}
	}
	if len(p.Only) > 0 && !slices.Contains(p.Only, peer.Role) {
		return refuse(ReasonRole, joinRoles(p.Only), string(peer.Role))
	}
	return nil
}

// Expected is what was said about the other end elsewhere, for example in
// gossip. Fields left empty are not compared.
type Expected struct {
	// Node, Role and Datacenter are compared with the certificate.
	Node       string
	Role       Role
	Datacenter string
	// Addr is the address that was dialled, IP:port. It is not compared: it is
	// for the text of a refusal.
	Addr string
}

// Check compares the claims of a certificate with what was expected: id, then
// role, then datacenter. The error is a [RefusalError] with the expectation as
// Ours; its Disagreement is true. A certificate without a datacenter agrees with
// any: it does not speak of it.
func (e Expected) Check(peer Claims) error {
	refuse := func(field Reason, ours, theirs string) error {
		return &RefusalError{Field: field, Ours: ours, Theirs: theirs, Node: peer.Node, Addr: e.Addr}
	}
	switch {
	case e.Node != "" && e.Node != peer.Node:
		return refuse(ReasonNode, e.Node, peer.Node)
	case e.Role != "" && e.Role != peer.Role:
		return refuse(ReasonRole, string(e.Role), string(peer.Role))
	case e.Datacenter != "" && peer.Datacenter != "" && e.Datacenter != peer.Datacenter:
		return refuse(ReasonDatacenter, e.Datacenter, peer.Datacenter)
	}
	return nil
}
