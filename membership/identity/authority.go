package identity

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"time"

	"github.com/ringway/ringway/internal/keyfile"
)

// backdate is how long before now the validity of a new certificate begins, so that a
// machine whose clock is slightly behind accepts it immediately.
const backdate = 5 * time.Minute

// AuthorityConfig describes a new authority.
type AuthorityConfig struct {
	// Name is the common name; default "ringway". It has no effect on checks.
	Name string
	// Validity is the lifetime of the authority; more than 0.
	Validity time.Duration
	// Now is the clock; default time.Now. Tests in a synctest bubble pass their own.
	Now func() time.Time
}

// KeyType is the type of a private key.
type KeyType string

// The types of key that a member can have. Ed25519 has the lowest cost for signing and
// verifying. ECDSA P-256 is for a certificate that browsers must accept.
const (
	Ed25519   KeyType = "ed25519"
	ECDSAP256 KeyType = "ecdsa-p256"
)

// Authority is a small certificate authority: one self-signed certificate and its key, held
// in memory. Its key is ECDSA P-256, which every tool supports; a loaded key may be
// Ed25519. It suits a demo, tests, and a fleet whose operators keep its key in a safe
// place. It keeps no list of issued certificates and revokes none: use Files.Denied for
// that. It is safe for concurrent use.
type Authority struct {
	cert *x509.Certificate
	key  crypto.Signer
	now  func() time.Time
}

// NewAuthority creates an authority with a new key.
func NewAuthority(cfg AuthorityConfig) (*Authority, error) {
	if cfg.Validity <= 0 {
		return nil, fmt.Errorf("new authority: validity %s: allowed is more than 0", cfg.Validity)
	}
	if cfg.Name == "" {
		cfg.Name = "ringway"
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	key, serial, err := newKey(ECDSAP256)
	if err != nil {
		return nil, fmt.Errorf("new authority: %w", err)
	}
	now := cfg.Now()
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: cfg.Name},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(cfg.Validity),
		// It signs members, but never another authority.
		BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}, &x509.Certificate{Subject: pkix.Name{CommonName: cfg.Name}}, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("new authority: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("new authority: %w", err)
	}
	return &Authority{cert: cert, key: key, now: cfg.Now}, nil
}

// LoadAuthority loads an authority from its PEM files. now is the clock, nil for time.Now.
func LoadAuthority(certPEM, keyPEM []byte, now func() time.Time) (*Authority, error) {
	if now == nil {
		now = time.Now
	}
	pair, _, err := keyfile.Pair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("load authority: %w", err)
	}
	key, _ := pair.PrivateKey.(crypto.Signer) // X509KeyPair returns no other kind
	switch key.(type) {
	case *ecdsa.PrivateKey, ed25519.PrivateKey:
	default:
		return nil, fmt.Errorf("load authority: its key is %s; only ECDSA and Ed25519 are supported", keyName(pair.Leaf.PublicKey))
	}
	switch {
	case !pair.Leaf.IsCA:
		return nil, fmt.Errorf("load authority: %q is no authority", pair.Leaf.Subject)
	case now().After(pair.Leaf.NotAfter):
		return nil, fmt.Errorf("load authority: %q ended at %s; make a new one", pair.Leaf.Subject, stamp(pair.Leaf.NotAfter))
	}
	return &Authority{cert: pair.Leaf, key: key, now: now}, nil
}

// Certificate returns the authority's own certificate. Do not change it.
func (a *Authority) Certificate() *x509.Certificate { return a.cert }

// CertificatePEM returns the certificate as PEM, for the file of authorities that every
// member trusts.
func (a *Authority) CertificatePEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: keyfile.CertificateBlock, Bytes: a.cert.Raw})
}

// KeyPEM returns the private key as PEM. Its holder can impersonate any member of the fleet.
func (a *Authority) KeyPEM() ([]byte, error) { return encodeKey(a.key) }

// Issue creates an Ed25519 key and a certificate for one member or client, for both sides
// of a connection. validity counts from now; it must not exceed that of the authority,
// because the certificate would become invalid before its own end.
func (a *Authority) Issue(claims Claims, validity time.Duration) (certPEM, keyPEM []byte, err error) {
	return a.IssueKey(Ed25519, claims, validity)
}

// IssueKey is Issue with a key of the given type.
func (a *Authority) IssueKey(keys KeyType, claims Claims, validity time.Duration) (certPEM, keyPEM []byte, err error) {
	if err := claims.validate(); err != nil {
		return nil, nil, fmt.Errorf("issue a certificate: %w", err)
	}
	now := a.now()
	end := now.Add(validity)
	switch {
	case validity <= 0:
		return nil, nil, fmt.Errorf("issue a certificate for %s: validity %s: allowed is more than 0", claims.Node, validity)
	case end.After(a.cert.NotAfter):
		return nil, nil, fmt.Errorf("issue a certificate for %s: it would end at %s, after its authority (%s): ask for less, or make a new authority",
			claims.Node, stamp(end), stamp(a.cert.NotAfter))
	}
	return a.sign(keys, &x509.Certificate{
		Subject: pkix.Name{CommonName: claims.Node}, URIs: claims.uris(),
		NotBefore: now.Add(-backdate), NotAfter: end,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
}

// sign issues a certificate from the template, with a new key and serial number.
func (a *Authority) sign(keys KeyType, template *x509.Certificate) (certPEM, keyPEM []byte, err error) {
	key, serial, err := newKey(keys)
	if err != nil {
		return nil, nil, fmt.Errorf("issue a certificate: %w", err)
	}
	template.SerialNumber = serial
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.BasicConstraintsValid = true
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("issue a certificate: %w", err)
	}
	if keyPEM, err = encodeKey(key); err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: keyfile.CertificateBlock, Bytes: der}), keyPEM, nil
}

// Source issues a certificate for the claims and returns it as a Source in memory, for a
// demo and for tests. See [NewStaticSource].
func (a *Authority) Source(claims Claims, validity time.Duration) (*Source, error) {
	cert, key, err := a.Issue(claims, validity)
	if err != nil {
		return nil, err
	}
	return NewStaticSource(PEM{Certificate: cert, Key: key, Authorities: a.CertificatePEM()}, SourceConfig{Now: a.now})
}

func newKey(keys KeyType) (key crypto.Signer, serial *big.Int, err error) {
	switch keys {
	case Ed25519:
		_, key, err = ed25519.GenerateKey(rand.Reader)
	case ECDSAP256:
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	default:
		return nil, nil, fmt.Errorf("key type %.20q: allowed are %s and %s", keys, Ed25519, ECDSAP256)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("generate a key: %w", err)
	}
	// 120 random bits: RFC 5280 requires a positive number of at most 20 bytes.
	random := make([]byte, 15)
	if _, err := rand.Read(random); err != nil {
		return nil, nil, fmt.Errorf("generate a serial number: %w", err)
	}
	return key, new(big.Int).SetBytes(append([]byte{1}, random...)), nil
}

func encodeKey(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode the private key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: keyfile.KeyBlock, Bytes: der}), nil
}
