package identity

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"
)

// trust is what a chain is judged by.
type trust struct {
	*material
	now time.Time
}

// check verifies that presented[0] leads to one of our authorities, now and for
// the given use, with the rest of presented as intermediates, and that it is not
// on the deny list. Until is when the first certificate of the chain ends.
func (t trust) check(presented []*x509.Certificate, use x509.ExtKeyUsage) (until time.Time, err error) {
	if len(presented) == 0 {
		return until, &RefusalError{Field: ReasonNoCertificate, Cause: errors.New("none was shown; every member and client needs one")}
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
		return until, t.denied(leaf)
	}
	refusal := &RefusalError{Field: ReasonUnknownAuthority, Cause: err}
	if claims, err := FromCertificate(leaf); err == nil {
		refusal.Node = claims.Node
	}
	var invalid x509.CertificateInvalidError
	switch {
	case t.now.After(leaf.NotAfter):
		refusal.Field = ReasonExpired
		refusal.Cause = fmt.Errorf("it ended at %s, %s ago; renew it", stamp(leaf.NotAfter), t.now.Sub(leaf.NotAfter).Round(time.Second))
	case t.now.Before(leaf.NotBefore):
		refusal.Field = ReasonNotYetValid
		refusal.Cause = fmt.Errorf("it begins at %s, in %s; look at the clocks of both machines", stamp(leaf.NotBefore), leaf.NotBefore.Sub(t.now).Round(time.Second))
	case errors.As(err, &invalid) && invalid.Reason == x509.IncompatibleUsage:
		refusal.Field = ReasonKeyUsage
		refusal.Cause = fmt.Errorf("it is not issued for %s: %w", useName(use), err)
	}
	return until, refusal
}

// lasting is, of the chain that lasts longest, the certificate above the leaf that
// ends first: the leaf counts no longer than that.
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

// PeerClaims returns who is at the other end of a connection that was made with
// a configuration of a Source. Call it after the handshake.
func PeerClaims(state tls.ConnectionState) (Claims, error) {
	if !state.HandshakeComplete {
		return Claims{}, errors.New("the TLS handshake is not complete: call HandshakeContext first")
	}
	if len(state.PeerCertificates) == 0 {
		return Claims{}, &RefusalError{Field: ReasonNoCertificate, Cause: errors.New("none was shown")}
	}
	return FromCertificate(state.PeerCertificates[0])
}
