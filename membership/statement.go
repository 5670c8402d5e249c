package membership

import (
	"errors"
	"fmt"

	"github.com/ringway/ringway/membership/identity"
)

// Statement is a kind of signed statement. A signature of one kind never counts for another.
type Statement string

// The kinds of statement. StatementRecord is an advertisement record of package advertise.
const (
	StatementRecord Statement = "record"

	statementMetadata Statement = "metadata"
	statementLeave    Statement = "leave"
	statementStay     Statement = "stay"
	statementPacket   Statement = "packet"
	statementAnswer   Statement = "answer"
)

// ErrUnproven is wrapped by errors of Verify if the author's certificate is not known here yet.
// The same statement may be valid later.
var ErrUnproven = errors.New("the certificate of its author is not known here")

// errForged is wrapped by errors about statements that their author did not sign.
var errForged = errors.New("not signed by its author")

// Sizes of a signature: the id of the certificate, then 64 bytes of Ed25519, or
// of ECDSA P-256 as two numbers of 32 bytes.
const (
	keyIDSize     = 8
	signatureSize = 64
	// MaxSignature is the most bytes that Sign returns.
	MaxSignature = keyIDSize + signatureSize
)

// Sign returns this node's signature of a statement, at most MaxSignature bytes. It is nil without
// certificates. Safe for concurrent use.
func (n *Node) Sign(kind Statement, statement []byte) []byte {
	if n.proofs == nil {
		return nil
	}
	return n.proofs.sign(kind, statement)
}

// Verify checks that the member with the given id made the statement. Without certificates the
// error is always nil, because any holder of the gossip key is trusted. The error wraps ErrUnproven
// while the author's certificate is unknown; any other error means that the statement is forged or
// damaged. Safe for concurrent use.
func (n *Node) Verify(author string, kind Statement, statement, signature []byte) error {
	if n.proofs == nil {
		return nil
	}
	key, ok := signer(signature)
	if !ok {
		return fmt.Errorf("%s of %q: %w: it carries no signature", kind, author, errForged)
	}
	certificate, err := n.proofs.certificate(key)
	if err != nil {
		if errors.Is(err, ErrUnproven) {
			if s := n.Snapshot(); s != nil {
				if m, alive := s.Get(author); alive {
					n.guard.request(key, requestSource{from: m.GossipAddr})
				}
			}
		}
		return fmt.Errorf("%s of %q: %w", kind, author, err)
	}
	return n.proofs.verify(certificate, claim{author, kind, statement, signature})
}

// SignedNow reports whether a signature of this node was made with its current certificate: after a
// renewal, statements must be signed again. Without certificates it is always true. Safe for
// concurrent use.
func (n *Node) SignedNow(signature []byte) bool {
	if n.proofs == nil {
		return true
	}
	key, ok := signer(signature)
	return ok && key == identity.KeyID(n.cfg.Identity.Chain()[0])
}

// signer returns the id of the certificate in a signature.
func signer(signature []byte) (key keyID, ok bool) {
	if len(signature) != MaxSignature {
		return key, false
	}
	return keyID(signature[:keyIDSize]), true
}

// claim is a statement with its claimed author.
type claim struct {
	author    string
	kind      Statement
	statement []byte
	signature []byte
}

// signed returns the bytes that a signature covers: the kind, the cluster and the statement.
func (p *proofs) signed(kind Statement, statement []byte) []byte {
	b := make([]byte, 0, len("ringway ")+len(kind)+len(p.label)+2+len(statement))
	b = append(append(append(b, "ringway "...), kind...), 0)
	b = append(append(b, p.label...), 0)
	return append(b, statement...)
}

func (p *proofs) sign(kind Statement, statement []byte) []byte {
	id, signature, err := p.source.Sign(p.signed(kind, statement))
	if err != nil {
		return nil // cannot happen with the keys that a source accepts; without a signature the message is refused
	}
	return append(id[:], signature...)
}

// verify checks a signature with the given certificate.
func (p *proofs) verify(certificate *identity.Certified, c claim) error {
	if certificate.Claims.Node != c.author {
		return fmt.Errorf("%s of %q: %w: the certificate is of %q", c.kind, c.author, errForged, certificate.Claims.Node)
	}
	if err := certificate.Verify(p.signed(c.kind, c.statement), c.signature[keyIDSize:]); err != nil {
		return fmt.Errorf("%s of %q: %w: %w", c.kind, c.author, errForged, err)
	}
	return nil
}
