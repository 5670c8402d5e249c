package identity

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// Action is the purpose for which an initiator connects to its target.
type Action string

// The actions of the connection matrix.
const (
	// ActionSubmit sends a request.
	ActionSubmit Action = "submit"
	// ActionForward passes a request on to the relay that serves it.
	ActionForward Action = "forward"
	// ActionDispatch sends a request to the worker that answers it.
	ActionDispatch Action = "dispatch"
	// ActionPeer is communication between members of the same role.
	ActionPeer Action = "peer"
	// ActionPush and ActionReport send data back; in practice they use connections that the other
	// side opened.
	ActionPush   Action = "push"
	ActionReport Action = "report"
	// ActionProgress is a worker's report on its work.
	ActionProgress Action = "progress"
)

// Matrix determines which role may open a connection to which, and for what. It applies to
// the data plane; gossip has a separate policy. An empty cell is a refusal, so everything
// not listed is refused.
type Matrix [len(roles)][len(roles)]Action

// Rows are initiators, columns targets, both in the order of roles.
var matrix = Matrix{
	/* client */ {"", ActionSubmit, ActionSubmit, ""},
	/* gate   */ {ActionPush, ActionPeer, ActionForward, ""},
	/* relay  */ {ActionPush, ActionReport, ActionPeer, ActionDispatch},
	/* worker */ {"", "", ActionProgress, ""},
}

// ConnectionMatrix returns a copy of the matrix that every policy applies.
func ConnectionMatrix() Matrix { return matrix }

// Allowed reports whether initiator may connect to target, and for what.
func Allowed(initiator, target Role) (Action, bool) { return matrix.Allowed(initiator, target) }

// Targets returns the roles that initiator may connect to.
func Targets(initiator Role) []Role { return matrix.Targets(initiator) }

// Sources returns the roles that may connect to target.
func Sources(target Role) []Role { return matrix.Sources(target) }

// Allowed reports whether initiator may connect to target, and for what. A role that does
// not exist may not connect.
func (m Matrix) Allowed(initiator, target Role) (Action, bool) {
	i, t := initiator.index(), target.index()
	if i < 0 || t < 0 || m[i][t] == "" {
		return "", false
	}
	return m[i][t], true
}

// Targets returns the roles that initiator may connect to.
func (m Matrix) Targets(initiator Role) []Role {
	var targets []Role
	for _, t := range roles {
		if _, ok := m.Allowed(initiator, t); ok {
			targets = append(targets, t)
		}
	}
	return targets
}

// Sources returns the roles that may connect to target.
func (m Matrix) Sources(target Role) []Role {
	var sources []Role
	for _, i := range roles {
		if _, ok := m.Allowed(i, target); ok {
			sources = append(sources, i)
		}
	}
	return sources
}

// Map returns the allowed cells as initiator → target → action, for JSON.
func (m Matrix) Map() map[Role]map[Role]Action {
	all := make(map[Role]map[Role]Action, len(roles))
	for _, i := range roles {
		all[i] = make(map[Role]Action, len(roles))
		for _, t := range m.Targets(i) {
			all[i][t], _ = m.Allowed(i, t)
		}
	}
	return all
}

// String returns the table that WriteTo writes.
func (m Matrix) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, `initiator \ target`)
	for _, t := range roles {
		fmt.Fprintf(w, "\t%s", t)
	}
	for _, i := range roles {
		fmt.Fprintf(w, "\n%s", i)
		for _, t := range roles {
			action, ok := m.Allowed(i, t)
			if !ok {
				action = "no"
			}
			fmt.Fprintf(w, "\t%s", action)
		}
	}
	fmt.Fprintln(w)
	_ = w.Flush() // a strings.Builder never fails
	return b.String()
}

// WriteTo writes the matrix as a table, one line for each initiator.
func (m Matrix) WriteTo(w io.Writer) (int64, error) {
	n, err := io.WriteString(w, m.String())
	return int64(n), err
}

// Direction is which side opened a connection.
type Direction string

// The directions.
const (
	// Inbound: the peer opened it; the peer is the TLS client.
	Inbound Direction = "inbound"
	// Outbound: we opened it; the peer is the TLS server.
	Outbound Direction = "outbound"
)

// Mode is the purpose of a policy.
type Mode uint8

// The modes.
const (
	// DataPlane applies the connection matrix.
	DataPlane Mode = iota
	// Gossip admits any member (gate, relay, worker) in either direction and does not use the
	// matrix: gossip streams are open between any two members of one cluster.
	Gossip
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

// Check checks the peer's claims: cluster, then environment, then the role. The error is a
// [RefusalError] without an address.
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

// Check compares the claims of a certificate with the expectation: id, then role, then
// datacenter. The error is a [RefusalError] with the expectation as Ours; its Disagreement
// is true. A certificate without a datacenter matches any datacenter.
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
