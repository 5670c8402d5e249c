package session

import (
	"errors"
	"fmt"

	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// keyBytes is the length of the certificate's id in front of a signature.
const keyBytes = 8

// covered returns the bytes that the signature of a record covers: those that a member covers.
func covered(label string, statement []byte) []byte {
	b := make([]byte, 0, len("ringway ")+len(membership.StatementRecord)+len(label)+2+len(statement))
	b = append(append(append(b, "ringway "...), membership.StatementRecord...), 0)
	b = append(append(b, label...), 0)
	return append(b, statement...)
}

// Sign returns the signature of a record, as membership.Node.Sign does; nil without a certificate.
func Sign(source *identity.Source, label string, statement []byte) []byte {
	if source == nil {
		return nil
	}
	id, signature, err := source.Sign(covered(label, statement))
	if err != nil {
		return nil // cannot happen with the keys that a source accepts
	}
	return append(id[:], signature...)
}

// Signer returns the id of the certificate that a signature names.
func Signer(signature []byte) (key [keyBytes]byte, ok bool) {
	if len(signature) != membership.MaxSignature {
		return key, false
	}
	return [keyBytes]byte(signature), true
}

var errNoAuthor = errors.New("the certificate is of another member")

// Verify checks the signature of a record with the certificate that it names.
func Verify(certificate *identity.Certified, label, author string, statement, signature []byte) error {
	if certificate.Claims.Node != author || certificate.Claims.Role != identity.RoleWorker {
		return fmt.Errorf("record of %q: %w: %s", author, errNoAuthor, certificate.Claims)
	}
	return certificate.Verify(covered(label, statement), signature[keyBytes:])
}
