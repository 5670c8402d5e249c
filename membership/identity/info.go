package identity

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"time"
)

// Validity is where now lies in the life of a certificate.
type Validity string

// The validities.
const (
	Valid       Validity = "valid"
	Expired     Validity = "expired"
	NotYetValid Validity = "not_yet_valid"
)

// Info is what an operator wants to know about a certificate.
type Info struct {
	// Subject and Issuer are distinguished names. They decide nothing.
	Subject string `json:"subject"`
	Issuer  string `json:"issuer"`
	// Serial is the serial number in hex.
	Serial string `json:"serial"`
	// Authority is true for a certificate that signs others; it has no claims.
	Authority bool `json:"authority"`
	// Claims is nil when there are none that would be accepted.
	Claims *Claims `json:"claims,omitempty"`
	// Problem says why Claims is nil; empty for an authority.
	Problem string `json:"problem,omitempty"`
	// Key is the kind of key, for example "ECDSA P-256".
	Key string `json:"key"`
	// NotBefore and NotAfter bound the validity.
	NotBefore time.Time `json:"not_before"`
	NotAfter  time.Time `json:"not_after"`
	// Validity is that at the time asked for.
	Validity Validity `json:"validity"`
	// RemainingSeconds until NotAfter, rounded down; negative once expired.
	RemainingSeconds int64 `json:"remaining_seconds"`
	// Fingerprint is the SHA-256 of the certificate in hex.
	Fingerprint string `json:"fingerprint"`
}

// Remaining is the time until the certificate expires; negative afterwards.
func (i Info) Remaining() time.Duration { return time.Duration(i.RemainingSeconds) * time.Second }

// Describe tells about one certificate as of now.
func Describe(cert *x509.Certificate, now time.Time) Info {
	info := Info{
		Subject: cert.Subject.String(), Issuer: cert.Issuer.String(), Serial: cert.SerialNumber.Text(16),
		Authority: cert.IsCA, Key: keyName(cert.PublicKey),
		NotBefore: cert.NotBefore.UTC(), NotAfter: cert.NotAfter.UTC(), Validity: Valid,
		RemainingSeconds: int64(cert.NotAfter.Sub(now) / time.Second),
		Fingerprint:      Fingerprint(cert),
	}
	switch {
	case now.After(cert.NotAfter):
		info.Validity = Expired
	case now.Before(cert.NotBefore):
		info.Validity = NotYetValid
	}
	claims, err := FromCertificate(cert)
	switch {
	case err == nil:
		info.Claims = &claims
	case !cert.IsCA:
		info.Problem = err.Error()
	}
	return info
}

// Fingerprint is the SHA-256 of a certificate in hex, as `openssl x509
// -fingerprint -sha256` has it without the colons. It tells two certificates of
// one member apart.
func Fingerprint(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.Raw)
	return hex.EncodeToString(sum[:])
}

func keyName(key any) string {
	switch k := key.(type) {
	case *ecdsa.PublicKey:
		return "ECDSA " + k.Curve.Params().Name
	case ed25519.PublicKey:
		return "Ed25519"
	case *rsa.PublicKey:
		return fmt.Sprintf("RSA %d", k.N.BitLen())
	}
	return fmt.Sprintf("%T", key)
}
