package handshake

import (
	"crypto/tls"
	"crypto/x509"
	"math/rand/v2"
	"net"
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
		var at time.Time
		add := func(from, to time.Time) {
			if early := before(from, to); at.IsZero() || early.Before(at) {
				at = early
			}
		}
		if source != nil {
			own := source.Info()
			add(own.NotBefore, own.NotAfter)
		}
		// Not those above it: which of them count is known only to the check of the chain.
		if shown := secured.ConnectionState().PeerCertificates; len(shown) > 0 {
			add(shown[0].NotBefore, shown[0].NotAfter)
		}
		return at
	}
}

// before returns a time before the end of a certificate: a tenth of its validity, by chance down to a
// twentieth, because many connections have begun together. Of a certificate that nearly ends it is
// half of what is left, so that connections do not end with every request.
func before(from, to time.Time) time.Time {
	early := min(mostEarly, to.Sub(from)/10)
	early -= time.Duration(rand.Float64() / 2 * float64(early))
	return to.Add(-min(early, max(0, time.Until(to)/2)))
}

// Renewal returns when a connection should begin to end because of one certificate of its handshake,
// as UntilRenewal has it: for a connection that its client replaces.
func Renewal(c *x509.Certificate) time.Time { return before(c.NotBefore, c.NotAfter) }
