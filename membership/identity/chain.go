package identity

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"time"
)

// trust holds what a chain is checked against.
type trust struct {
	*material
	now time.Time
}

// check verifies that presented[0] leads to one of our authorities, now and for the given
// use, with the rest of presented as intermediates, and that it is not on the deny list.
// until is when the first certificate of the chain expires.
func (t trust) check(presented []*x509.Certificate, use x509.ExtKeyUsage) (until time.Time, err error) {
	if len(presented) == 0 {
		return until, &RefusalError{Field: reasonNoCertificate, Cause: errors.New("none was shown; every member and client needs one")}
	}
	leaf := presented[0]
	intermediates := x509.NewCertPool()
	for _, c := range presented[1:] {
		intermediates.AddCert(c)
	}
	chains, err := leaf.Verify(x509.VerifyOptions{
		Roots: t.roots, Intermediates: intermediates, CurrentTime: t.now,
		KeyUsages: []x509.ExtKeyUsage{use},
	})
	if err == nil {
		until = leaf.NotAfter
		if above := lasting(chains); above.NotAfter.Before(until) {
			until = above.NotAfter
		}
		return until, t.refuseDenied(leaf)
	}
	refusal := &RefusalError{Field: reasonUnknownAuthority, Cause: err}
	if claims, err := t.template.claims(leaf); err == nil {
		refusal.Node = claims.Node
	}
	var invalid x509.CertificateInvalidError
	var unknown x509.UnknownAuthorityError
	switch {
	case t.now.After(leaf.NotAfter):
		refusal.Field = reasonExpired
		refusal.Cause = fmt.Errorf("it ended at %s, %s ago; renew it", stamp(leaf.NotAfter), t.now.Sub(leaf.NotAfter).Round(time.Second))
	case t.now.Before(leaf.NotBefore):
		refusal.Field = reasonNotYetValid
		refusal.Cause = fmt.Errorf("it begins at %s, in %s; check the clocks of both machines", stamp(leaf.NotBefore), leaf.NotBefore.Sub(t.now).Round(time.Second))
	case errors.As(err, &invalid) && invalid.Reason == x509.IncompatibleUsage:
		refusal.Field = reasonKeyUsage
		refusal.Cause = fmt.Errorf("it is not issued for %s: %w", useName(use), err)
	case errors.As(err, &unknown):
		// The text of x509 has neither the name of the issuer nor a remedy.
		refusal.Cause = fmt.Errorf("it was issued by %.80q, which is not an authority that is trusted here%s: give both certificates of one authority, let all members trust both, or add a missing intermediate to the file of the certificate",
			leaf.Issuer.String(), t.namesake(leaf))
	}
	return until, refusal
}

// namesake mentions an authority of ours that has the name of the issuer, and another key.
func (t trust) namesake(leaf *x509.Certificate) string {
	if t.authority == nil || !bytes.Equal(t.authority.RawSubject, leaf.RawIssuer) {
		return ""
	}
	return " (the authority of that name here has another key)"
}

// lasting returns, of the chain that is valid longest, the certificate above the leaf that
// expires first: the leaf is not valid longer than that.
func lasting(chains [][]*x509.Certificate) *x509.Certificate {
	var lasting *x509.Certificate
	for _, c := range chains {
		first := c[len(c)-1]
		for _, above := range c[1:] {
			if above.NotAfter.Before(first.NotAfter) {
				first = above
			}
		}
		if lasting == nil || first.NotAfter.After(lasting.NotAfter) {
			lasting = first
		}
	}
	return lasting
}

func useName(use x509.ExtKeyUsage) string {
	if use == x509.ExtKeyUsageServerAuth {
		return "server authentication"
	}
	return "client authentication"
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// PeerClaims returns the claims of the peer of a connection that was made with a
// configuration of this Source. Call it after the handshake.
func (s *Source) PeerClaims(state tls.ConnectionState) (Claims, error) {
	if !state.HandshakeComplete {
		return Claims{}, errors.New("the TLS handshake is not complete: call HandshakeContext first")
	}
	if len(state.PeerCertificates) == 0 {
		return Claims{}, &RefusalError{Field: reasonNoCertificate, Cause: errors.New("none was shown")}
	}
	return s.FromCertificate(state.PeerCertificates[0])
}

// Validity is whether a certificate is valid at a given time.
type Validity string

// The validities.
const (
	Valid       Validity = "valid"
	Expired     Validity = "expired"
	NotYetValid Validity = "not_yet_valid"
)

// Info describes a certificate for operators.
type Info struct {
	// Subject and Issuer are distinguished names. They have no effect on checks.
	Subject string `json:"subject"`
	Issuer  string `json:"issuer"`
	// Serial is the serial number in hex.
	Serial string `json:"serial"`
	// Authority is true for a certificate that signs others; it has no claims.
	Authority bool `json:"authority"`
	// Claims is nil if the certificate has no valid claims.
	Claims *Claims `json:"claims,omitempty"`
	// Template is the SourceConfig.Template that Claims were read by; empty for names ringway://….
	Template string `json:"template,omitempty"`
	// Problem is why Claims is nil; empty for an authority.
	Problem string `json:"problem,omitempty"`
	// Key is the kind of key, for example "ECDSA P-256".
	Key string `json:"key"`
	// NotBefore and NotAfter are the limits of the validity.
	NotBefore time.Time `json:"not_before"`
	NotAfter  time.Time `json:"not_after"`
	// Validity is the validity at the requested time.
	Validity Validity `json:"validity"`
	// RemainingSeconds until NotAfter, rounded down; negative once expired.
	RemainingSeconds int64 `json:"remaining_seconds"`
	// Fingerprint is the SHA-256 of the certificate in hex.
	Fingerprint string `json:"fingerprint"`
}

// Describe describes one certificate as of now, with the claims that a Source with the template has
// for it: [SourceConfig.Template]. The error is why the template cannot be used.
func Describe(cert *x509.Certificate, now time.Time, template string) (Info, error) {
	t, err := parseTemplate(template)
	if err != nil {
		return Info{}, refusedTemplate(template, err)
	}
	return describe(cert, now, t), nil
}

func describe(cert *x509.Certificate, now time.Time, t *template) Info {
	info := Info{
		Subject: cert.Subject.String(), Issuer: cert.Issuer.String(), Serial: cert.SerialNumber.Text(16),
		Authority: cert.IsCA, Key: keyName(cert.PublicKey),
		NotBefore: cert.NotBefore.UTC(), NotAfter: cert.NotAfter.UTC(), Validity: Valid,
		RemainingSeconds: int64(cert.NotAfter.Sub(now) / time.Second),
		Fingerprint:      fingerprint(cert),
	}
	switch {
	case now.After(cert.NotAfter):
		info.Validity = Expired
	case now.Before(cert.NotBefore):
		info.Validity = NotYetValid
	}
	if t != nil {
		info.Template = t.text
	}
	claims, err := t.claims(cert)
	switch {
	case err == nil:
		info.Claims = &claims
	case !cert.IsCA:
		info.Problem = err.Error()
	}
	return info
}

// fingerprint returns the SHA-256 of a certificate in hex, like `openssl x509 -fingerprint
// -sha256` without the colons. It distinguishes two certificates of one member.
func fingerprint(cert *x509.Certificate) string {
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
