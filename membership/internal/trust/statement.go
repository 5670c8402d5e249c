package trust

import (
	"errors"
	"fmt"

	"github.com/ringway/ringway/membership/identity"
)

// Statement is a kind of signed statement. A signature of one kind never counts for another.
type Statement string

// The kinds of statement. StatementRecord is an advertisement record of package advertise,
// StatementLeave and StatementStay are notices of package membership.
const (
	StatementRecord   Statement = "record"
	StatementLeave    Statement = "leave"
	StatementStay     Statement = "stay"
	statementMetadata Statement = "metadata"
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

// Sign returns this node's signature of a statement.
func (g *Guard) Sign(kind Statement, statement []byte) []byte {
	return g.proofs.sign(kind, statement)
}

// Verify checks that the author of a statement made it. The error wraps ErrUnproven while the
// certificate is unknown, and the certificate is then requested if the author is alive and no other
// one is requested for its statements; any other error means that the statement is forged or damaged.
func (g *Guard) Verify(c Claim) error {
	key, ok := signer(c.Signature)
	if !ok {
		return fmt.Errorf("%s of %q: %w: it carries no signature", c.Kind, c.Author, errForged)
	}
	certificate, err := g.proofs.certificate(key)
	if err != nil {
		if errors.Is(err, ErrUnproven) {
			if addr := g.cfg.AddrOf(c.Author); addr != "" {
				g.request(key, requestSource{from: addr, author: c.Author})
			}
		}
		return fmt.Errorf("%s of %q: %w", c.Kind, c.Author, err)
	}
	return g.proofs.verify(certificate, c)
}

// SignedNow reports whether a signature of this node was made with its current certificate.
func (g *Guard) SignedNow(signature []byte) bool {
	key, ok := signer(signature)
	return ok && key == identity.KeyID(g.cfg.Identity.Chain()[0])
}

// signer returns the id of the certificate in a signature.
func signer(signature []byte) (key keyID, ok bool) {
	if len(signature) != MaxSignature {
		return key, false
	}
	return keyID(signature[:keyIDSize]), true
}

// Claim is a statement with its claimed author.
type Claim struct {
	Author    string
	Kind      Statement
	Statement []byte
	Signature []byte
}

// signed returns the bytes that a signature covers: the kind, the cluster and the statement. So a
// statement does not count as one of another kind, nor in another cluster whose members have
// certificates of the same authority.
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
func (p *proofs) verify(certificate *identity.Certified, c Claim) error {
	if certificate.Claims.Node != c.Author {
		return fmt.Errorf("%s of %q: %w: the certificate is of %q", c.Kind, c.Author, errForged, certificate.Claims.Node)
	}
	if err := certificate.Verify(p.signed(c.Kind, c.Statement), c.Signature[keyIDSize:]); err != nil {
		return fmt.Errorf("%s of %q: %w: %w", c.Kind, c.Author, errForged, err)
	}
	return nil
}
