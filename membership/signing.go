package membership

import (
	"time"

	"github.com/ringway/ringway/membership/internal/trust"
)

// Statement is a kind of signed statement. A signature of one kind never counts for another.
type Statement string

// StatementRecord is an advertisement record of package advertise.
const StatementRecord Statement = Statement(trust.StatementRecord)

// The notices of this package.
const (
	statementLeave = Statement(trust.StatementLeave)
	statementStay  = Statement(trust.StatementStay)
)

// ErrUnproven is wrapped by errors of Verify if the author's certificate is not known here yet.
// The same statement may be valid later.
var ErrUnproven = trust.ErrUnproven

// MaxSignature is the most bytes that Sign returns.
const MaxSignature = trust.MaxSignature

// Sign returns this node's signature of a statement, at most MaxSignature bytes. It is nil without
// certificates. Safe for concurrent use.
func (n *Node) Sign(kind Statement, statement []byte) []byte {
	if n.guard == nil {
		return nil
	}
	return n.guard.Sign(trust.Statement(kind), statement)
}

// Verify checks that the member with the given id made the statement. Without certificates the
// error is always nil, because any holder of the gossip key is trusted. The error wraps ErrUnproven
// while the author's certificate is unknown; any other error means that the statement is forged or
// damaged. Safe for concurrent use.
func (n *Node) Verify(author string, kind Statement, statement, signature []byte) error {
	if n.guard == nil {
		return nil
	}
	return n.guard.Verify(trust.Claim{Author: author, Kind: trust.Statement(kind), Statement: statement, Signature: signature})
}

// addrOf returns the gossip address of a live member, empty if there is none.
func (n *Node) addrOf(id string) string {
	if s := n.Snapshot(); s != nil {
		if m, alive := s.Get(id); alive {
			return m.GossipAddr
		}
	}
	return ""
}

// SignedNow reports whether a signature of this node was made with its current certificate: after a
// renewal, statements must be signed again. Without certificates it is always true. Safe for
// concurrent use.
func (n *Node) SignedNow(signature []byte) bool {
	return n.guard == nil || n.guard.SignedNow(signature)
}

// Unproven is an instance that gossip reports and that is in no snapshot, because its identity is
// not proven.
type Unproven struct {
	// ID, Epoch and GossipAddr are what gossip reports; any of them may be forged.
	ID         string `json:"id"`
	Epoch      uint64 `json:"epoch"`
	GossipAddr string `json:"gossip_addr,omitempty"`
	// Reason states what is missing and what to do.
	Reason string `json:"reason"`
	// Since is when the instance was first refused for that reason.
	Since time.Time `json:"since"`
}

// Unproven lists the instances that gossip reports and that are in no snapshot, sorted by id. It
// is empty without certificates.
func (n *Node) Unproven() []Unproven {
	if n.guard == nil {
		return nil
	}
	list := n.guard.Unproven()
	out := make([]Unproven, len(list))
	for i, u := range list {
		out[i] = Unproven(u)
	}
	return out
}

// Doubters returns, by id, the members whose doubts about others were denied more than ten times
// and lately, with the number. A member may only have passed the doubts on. Nil without
// certificates, and if there are none.
func (n *Node) Doubters() map[string]uint64 {
	if n.guard == nil {
		return nil
	}
	return n.guard.Doubters()
}
