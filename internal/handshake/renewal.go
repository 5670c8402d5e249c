package handshake

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"math/rand/v2"
	"net"
	"slices"
	"time"

	"github.com/ringway/ringway/membership/identity"
)

// mostEarly is how long before the end of a certificate connections begin to end, at most.
const mostEarly = time.Hour

// UntilRenewal returns downstream's Config.Until for a listener of members: a connection begins to
// end some time before the first of the two certificates of its handshake does. At that end one of
// the sides closes it, whatever it carries, although both may have renewed their certificates long
// before: a new connection shows these. Without a source only the certificate of the client counts.
func UntilRenewal(source *identity.Source) func(net.Conn) time.Time {
	return func(nc net.Conn) time.Time {
		secured, ok := nc.(*tls.Conn)
		if !ok {
			return time.Time{}
		}
		at := Renewal(secured.ConnectionState().PeerCertificates)
		if source != nil {
			for _, own := range []identity.Info{source.Info(), source.Authority()} {
				at = earlier(at, before(own.NotBefore, own.NotAfter))
			}
		}
		return at
	}
}

// Renewal returns when a connection should begin to end because of the certificates that the other side
// has shown, as UntilRenewal has it: for a connection that its client replaces. It is zero if there
// are none.
func Renewal(shown []*x509.Certificate) (at time.Time) {
	for _, c := range chain(shown) {
		at = earlier(at, before(c.NotBefore, c.NotAfter))
	}
	return at
}

// earlier returns the earlier of two times, the second if the first is zero.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// chain returns the first of the certificates and those above it. Others may have been sent as well, such
// as an authority that was replaced: of several with the name of an issuer it is the one that ends last.
func chain(shown []*x509.Certificate) (out []*x509.Certificate) {
	for len(out) < len(shown) {
		if len(out) == 0 {
			out = shown[:1:1]
			continue
		}
		var above *x509.Certificate
		last := out[len(out)-1]
		for _, c := range shown[1:] {
			if bytes.Equal(c.RawSubject, last.RawIssuer) && !slices.Contains(out, c) && (above == nil || c.NotAfter.After(above.NotAfter)) {
				above = c
			}
		}
		if above == nil {
			break
		}
		out = append(out, above)
	}
	return out
}

// before returns a time before the end of a certificate: a tenth of its validity, by chance down to a
// twentieth, because many connections have begun together. Of a certificate that nearly ends it is
// half of what is left, so that connections do not end with every request.
func before(from, to time.Time) time.Time {
	early := min(mostEarly, to.Sub(from)/10)
	early -= time.Duration(rand.Float64() / 2 * float64(early))
	return to.Add(-min(early, max(0, time.Until(to)/2)))
}
