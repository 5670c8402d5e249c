package identity

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"sync/atomic"
	"time"
)

// Limits of a chain that was not received in a TLS handshake. An honest chain has a leaf of
// less than 1 KiB and an intermediate or two.
const (
	maxChain      = 4
	maxChainBytes = 16 << 10
	// maxRSABits is the limit of crypto/tls: the cost of a check grows with the square of the
	// size.
	maxRSABits = 8192
)

// signatureSize is the size of every signature, with either type of key.
const signatureSize = 64

// remedyKey is the remedy for a key that cannot sign statements.
const remedyKey = "members sign statements with Ed25519 or ECDSA P-256, whose signatures fit into a packet: create the certificate again with such a key (`tls cert create` creates a suitable one; at other issuers set the type of the key)"

// KeyID returns a short name of a certificate: the first 8 bytes of the SHA-256 of its DER.
// It is used to look a certificate up and proves nothing.
func KeyID(leafDER []byte) [8]byte {
	sum := sha256.Sum256(leafDER)
	return [8]byte(sum[:8])
}

// Chain returns our certificate and the intermediates from the same file, as DER, leaf
// first. Do not change it.
func (s *Source) Chain() [][]byte { return s.current.Load().pair.Certificate }

// Sign signs a message with the key of our current certificate, and returns the
// certificate's [KeyID] as well. The signature has [signatureSize] bytes: Ed25519 (RFC
// 8032), or ECDSA P-256 with SHA-256 as r||s (IEEE P1363), because ASN.1 has no fixed size.
//
// The same key signs TLS handshakes. A message must not begin with a space, so that no
// signature is valid in TLS: the text that a handshake signs begins with 64 spaces (RFC
// 8446, section 4.4.3).
func (s *Source) Sign(message []byte) (id [8]byte, signature []byte, err error) {
	pair := s.current.Load().pair
	id = KeyID(pair.Certificate[0])
	if len(message) == 0 || message[0] == ' ' {
		return id, nil, errors.New("sign a statement: it is empty or begins with a space, like the text that TLS signs")
	}
	switch key := pair.PrivateKey.(type) {
	case ed25519.PrivateKey:
		return id, ed25519.Sign(key, message), nil
	case *ecdsa.PrivateKey:
		if key.Curve != elliptic.P256() {
			break
		}
		hash := sha256.Sum256(message)
		r, t, err := ecdsa.Sign(rand.Reader, key, hash[:])
		if err != nil {
			return id, nil, fmt.Errorf("sign a statement: %w", err)
		}
		signature = make([]byte, signatureSize)
		r.FillBytes(signature[:signatureSize/2])
		t.FillBytes(signature[signatureSize/2:])
		return id, signature, nil
	}
	return id, nil, fmt.Errorf("sign a statement: the key is %s; %s", s.Info().Key, remedyKey)
}

// signingKey returns an error if the key cannot sign statements.
func signingKey(public crypto.PublicKey) error {
	switch key := public.(type) {
	case ed25519.PublicKey:
		return nil
	case *ecdsa.PublicKey:
		if key.Curve == elliptic.P256() {
			return nil
		}
	}
	return fmt.Errorf("its key is %s; %s", keyName(public), remedyKey)
}

// Certified is a verified certificate of another member. It is safe for concurrent use.
type Certified struct {
	// Claims are the claims of the certificate.
	Claims Claims
	// KeyID is the id of the certificate.
	KeyID [8]byte
	// Serial is the serial number in hex.
	Serial string
	// NotAfter is when the certificate expires, or an authority above it if that is sooner.
	NotAfter time.Time

	chain    [][]byte
	public   crypto.PublicKey
	standing atomic.Pointer[standing]
}

// standing is the result of the newest check of a certificate, and the trust number under
// which it was made.
type standing struct {
	trusts  uint64
	until   time.Time
	refusal error
}

// Verify checks that the holder of the certificate signed the message. The caller must call
// [Source.Recheck] to check that the certificate is still valid. ECDSA signatures have a
// second valid form, so two different signatures do not prove two statements.
func (c *Certified) Verify(message, signature []byte) error {
	if len(signature) != signatureSize {
		return fmt.Errorf("the signature has %d bytes, %d are needed", len(signature), signatureSize)
	}
	valid := false
	switch key := c.public.(type) {
	case ed25519.PublicKey:
		valid = ed25519.Verify(key, message, signature)
	case *ecdsa.PublicKey:
		hash := sha256.Sum256(message)
		r, s := new(big.Int).SetBytes(signature[:signatureSize/2]), new(big.Int).SetBytes(signature[signatureSize/2:])
		valid = ecdsa.Verify(key, hash[:], r, s)
	}
	if !valid {
		return fmt.Errorf("the signature is not of the key of %s", c.Claims)
	}
	return nil
}

// Chain returns the certified chain, as DER, leaf first. Do not change it.
func (c *Certified) Chain() [][]byte { return c.chain }

// Certify checks a chain from any source, leaf first: that it leads to one of our
// authorities, is valid now and for both sides of a connection, is not on the deny list,
// belongs to a member of our cluster and environment, and has a key that can sign
// statements. Every error is a [RefusalError]. It costs several signature checks, so keep
// the result.
func (s *Source) Certify(chain [][]byte) (*Certified, error) {
	c := &Certified{}
	m := s.current.Load()
	leaf, until, err := s.certify(m, chain)
	if err != nil {
		return nil, err
	}
	c.Claims, _ = m.template.claims(leaf) // cannot fail: certify has read them
	c.KeyID, c.Serial, c.NotAfter = KeyID(leaf.Raw), leaf.SerialNumber.Text(16), until
	c.public = leaf.PublicKey
	for _, der := range chain {
		c.chain = append(c.chain, slices.Clone(der)) // it may be part of a larger buffer
	}
	c.standing.Store(&standing{trusts: m.trusts, until: until})
	return c, nil
}

// Recheck checks that the result of Certify is still valid: the certificate has not
// expired, is not on the deny list, and still leads to one of our authorities. It costs two
// comparisons unless authorities or deny list have changed since.
func (s *Source) Recheck(c *Certified) error {
	m, now, st := s.current.Load(), s.cfg.Now(), c.standing.Load()
	if st.trusts != m.trusts {
		_, until, err := s.certify(m, c.chain)
		st = &standing{trusts: m.trusts, until: until, refusal: err}
		c.standing.Store(st)
	}
	if st.refusal == nil && now.After(st.until) {
		return ended(c.Claims.Node, st.until)
	}
	return st.refusal
}

// ended returns the refusal of an expired certificate.
func ended(node string, until time.Time) *RefusalError {
	return &RefusalError{Field: reasonExpired, Node: node, Cause: fmt.Errorf("it, or an authority above it, ended at %s; renew it", stamp(until))}
}

func (s *Source) certify(m *material, chain [][]byte) (leaf *x509.Certificate, until time.Time, err error) {
	presented, err := parseChain(chain)
	if err != nil {
		return nil, until, &RefusalError{Field: reasonMalformed, Cause: err}
	}
	leaf = presented[0]
	t := trust{material: m, now: s.cfg.Now()}
	for _, use := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		if until, err = t.check(presented, use); err != nil {
			return nil, until, err
		}
	}
	claims, err := m.template.claims(leaf)
	if err != nil {
		return nil, until, &RefusalError{Field: reasonMalformed, Cause: err}
	}
	if err := (Policy{Self: m.claims, Mode: gossip}).Check(claims); err != nil {
		return nil, until, err
	}
	if err := signingKey(leaf.PublicKey); err != nil {
		return nil, until, &RefusalError{Field: reasonKeyUsage, Node: claims.Node, Cause: err}
	}
	return leaf, until, nil
}

// parseChain parses a chain of DER within its limits.
func parseChain(chain [][]byte) ([]*x509.Certificate, error) {
	size := 0
	for _, der := range chain {
		size += len(der)
	}
	switch {
	case len(chain) == 0:
		return nil, errors.New("no certificate in the chain")
	case len(chain) > maxChain:
		return nil, fmt.Errorf("%d certificates in the chain, at most %d are read", len(chain), maxChain)
	case size > maxChainBytes:
		return nil, fmt.Errorf("%d bytes of certificates in the chain, at most %d are read", size, maxChainBytes)
	}
	var certs []*x509.Certificate
	for i, der := range chain {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, fmt.Errorf("certificate %d of the chain cannot be read: %w", i+1, err)
		}
		if key, ok := cert.PublicKey.(*rsa.PublicKey); ok && key.N.BitLen() > maxRSABits {
			return nil, fmt.Errorf("certificate %d of the chain has a key of %d bits, at most %d are checked", i+1, key.N.BitLen(), maxRSABits)
		}
		certs = append(certs, cert)
	}
	return certs, nil
}
