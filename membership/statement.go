package membership

import (
	"errors"
	"fmt"

	"github.com/ringway/ringway/membership/identity"
)

// statementKind is a kind of signed statement. A signature of one kind never counts for another.
type statementKind string

// The kinds of statement. kindRecord is an advertisement record of package advertise, kindLeave and
// kindStay are notices of package membership.
const (
	kindRecord   statementKind = "record"
	kindLeave    statementKind = "leave"
	kindStay     statementKind = "stay"
	kindMetadata statementKind = "metadata"
	kindPacket   statementKind = "packet"
	kindAnswer   statementKind = "answer"
)

// errUnproven is wrapped by errors of verify if the author's certificate is not known here yet.
// The same statement may be valid later.
var errUnproven = errors.New("the certificate of its author is not known here")

// errForged is wrapped by errors about statements that their author did not sign.
var errForged = errors.New("not signed by its author")

// Sizes of a signature: the id of the certificate, then 64 bytes of Ed25519, or
// of ECDSA P-256 as two numbers of 32 bytes.
const (
	keyIDSize     = 8
	signatureSize = 64
	// maxSignature is the most bytes that sign returns.
	maxSignature = keyIDSize + signatureSize
)

// sign returns this node's signature of a statement.
func (g *guard) sign(kind statementKind, statement []byte) []byte {
	return g.proofs.sign(kind, statement)
}

// verify checks that the author of a statement made it. The error wraps errUnproven while the
// certificate is unknown, and the certificate is then requested if the author is alive; any other
// error means that the statement is forged or damaged.
func (g *guard) verify(c claim) error {
	key, ok := signer(c.signature)
	if !ok {
		return fmt.Errorf("%s of %q: %w: it carries no signature", c.kind, c.author, errForged)
	}
	certificate, err := g.proofs.certificate(key)
	if err != nil {
		if errors.Is(err, errUnproven) {
			if addr := g.cfg.addrOf(c.author); addr != "" {
				g.request(key, requestSource{from: addr})
			}
		}
		return fmt.Errorf("%s of %q: %w", c.kind, c.author, err)
	}
	return g.proofs.verify(certificate, c)
}

// signedNow reports whether a signature of this node was made with its current certificate.
func (g *guard) signedNow(signature []byte) bool {
	key, ok := signer(signature)
	return ok && key == identity.KeyID(g.cfg.source.Chain()[0])
}

// signer returns the id of the certificate in a signature.
func signer(signature []byte) (key keyID, ok bool) {
	if len(signature) != maxSignature {
		return key, false
	}
	return keyID(signature[:keyIDSize]), true
}

// claim is a statement with its claimed author.
type claim struct {
	author    string
	kind      statementKind
	statement []byte
	signature []byte
}

// signed returns the bytes that a signature covers: the kind, the cluster and the statement.
func (p *proofs) signed(kind statementKind, statement []byte) []byte {
	b := make([]byte, 0, len("ringway ")+len(kind)+len(p.label)+2+len(statement))
	b = append(append(append(b, "ringway "...), kind...), 0)
	b = append(append(b, p.label...), 0)
	return append(b, statement...)
}

func (p *proofs) sign(kind statementKind, statement []byte) []byte {
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
