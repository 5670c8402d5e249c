package clienttls

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/ringway/ringway/internal/wire"
)

var errUnnamed = errors.New("the client certificate has no name that can be used")

// Caller returns the name of the client on a connection, empty if it has presented no
// certificate.
func Caller(state *tls.ConnectionState) string {
	if state == nil || len(state.VerifiedChains) == 0 {
		return ""
	}
	name, _ := callerName(state.PeerCertificates[0]) // the handshake has refused others
	return name
}

// callerName returns the name in a certificate: the member of the fleet, as ringway://node/cart, else a
// SPIFFE ID, else another URI, else the first DNS name, else the common name. What else the fleet
// writes into certificates, such as the role, many of them share.
func callerName(leaf *x509.Certificate) (string, error) {
	name := uriName(leaf.URIs)
	switch {
	case name != "":
	case len(leaf.DNSNames) > 0:
		name = leaf.DNSNames[0]
	default:
		name = leaf.Subject.CommonName
	}
	switch {
	case name == "":
		return "", fmt.Errorf("%w: it has no URI, no DNS name and no common name: issue it with one", errUnnamed)
	case len(name) > wire.MaxCaller: // not cut: two names could then become one
		return "", fmt.Errorf("%w: it has %d bytes, at most %d are allowed: issue it with a shorter one", errUnnamed, len(name), wire.MaxCaller)
	}
	for i := range len(name) {
		if c := name[i]; c <= ' ' && (c < ' ' || i == 0 || i == len(name)-1) || c >= 0x7f {
			return "", fmt.Errorf("%w: %.300q is not printable ASCII without spaces at its ends: issue it with another one", errUnnamed, name)
		}
	}
	return name, nil
}

// uriName returns the URI that names the holder of a certificate, empty if none does.
func uriName(uris []*url.URL) string {
	spiffe, other := "", ""
	for _, u := range uris {
		switch {
		case u.Scheme == "ringway":
			if u.Host == "node" {
				return u.String()
			}
		case u.Scheme == "spiffe" && spiffe == "":
			spiffe = u.String()
		case other == "":
			other = u.String()
		}
	}
	return cmp.Or(spiffe, other)
}

// validUntil returns when the first certificate ends of the chain that is valid longest.
func validUntil(chains [][]*x509.Certificate) (until time.Time) {
	for _, chain := range chains {
		end := chain[0].NotAfter
		for _, one := range chain[1:] {
			if one.NotAfter.Before(end) {
				end = one.NotAfter
			}
		}
		if end.After(until) {
			until = end
		}
	}
	return until
}
