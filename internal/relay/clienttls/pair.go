package clienttls

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ringway/ringway/internal/keyfile"
)

// Pair are the paths of a certificate, with its intermediates, and of its key, both in PEM.
type Pair struct{ Certificate, Key string }

// pairFiles is a pair and what was last read of it.
type pairFiles struct {
	Pair
	hash   [sha256.Size]byte
	loaded tls.Certificate
	state  fileState
	warned string // the serial number and stage of the last warning about its end
}

// fileState is the result of the newest read of some files.
type fileState struct {
	problem error  // nil if the content on disk is in use
	failed  string // the broken state that was last counted and logged
}

// read returns the content of both files, and its hash.
func (p Pair) read() (certificate, key []byte, hash [sha256.Size]byte, err error) {
	certificate, certErr := keyfile.Read(p.Certificate)
	key, keyErr := keyfile.Read(p.Key)
	if err := errors.Join(certErr, keyErr); err != nil {
		return nil, nil, hash, err
	}
	h := sha256.New()
	for _, b := range [][]byte{certificate, key} {
		sum := sha256.Sum256(b)
		h.Write(sum[:])
	}
	return certificate, key, [sha256.Size]byte(h.Sum(nil)), nil
}

// parse makes a certificate of the content, or returns all problems.
func (p Pair) parse(certificate, key []byte) (tls.Certificate, error) {
	pair, _, err := keyfile.Pair(certificate, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("%s and %s: %w", p.Certificate, p.Key, err)
	}
	var errs []error
	leaf := pair.Leaf
	if len(leaf.DNSNames)+len(leaf.IPAddresses) == 0 {
		errs = append(errs, fmt.Errorf("%s: it has no DNS name and no IP address, and clients ignore the common name: issue it with a subject alternative name", p.Certificate))
	}
	if uses := leaf.ExtKeyUsage; len(uses) > 0 && !slices.Contains(uses, x509.ExtKeyUsageServerAuth) && !slices.Contains(uses, x509.ExtKeyUsageAny) {
		errs = append(errs, fmt.Errorf("%s: it is not for servers: issue it with the extended key usage serverAuth", p.Certificate))
	}
	if _, err := keyfile.CheckAccess(p.Key); err != nil {
		errs = append(errs, err)
	}
	return pair, errors.Join(errs...)
}

// stage describes how near the end of the certificate is, empty if it is far.
func stage(leaf *x509.Certificate, now time.Time) string {
	left := leaf.NotAfter.Sub(now)
	switch {
	case left < 0:
		return "has expired"
	case left < leaf.NotAfter.Sub(leaf.NotBefore)/5:
		return "expires soon"
	}
	return ""
}
