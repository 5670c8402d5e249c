package clienttls

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ringway/ringway/internal/proxy/socket"
	"github.com/ringway/ringway/membership/identity"
)

// The reasons for which a handshake fails.
const (
	reasonHandshake   = "handshake"         // broken TLS, or no version or algorithm in common
	reasonClosed      = "closed"            // the client went away
	reasonTimeout     = "timeout"           // the connection was closed meanwhile
	reasonClearText   = "clear_text"        // HTTP without TLS
	reasonNone        = "no_certificate"    // a client certificate is required
	ReasonAuthority   = "unknown_authority" // of the client certificate
	ReasonExpired     = "expired"           // the client certificate, or it is not valid yet
	ReasonUnnamed     = "unnamed"           // the client certificate has no name that can be used
	ReasonNotClient   = "not_a_client"      // a certificate of the fleet that is none of a client here
	ReasonCertificate = "certificate"       // the client certificate has another fault
)

// Reasons lists the reasons for which a handshake fails, for metrics.
func Reasons() []string {
	return []string{reasonHandshake, reasonClosed, reasonTimeout, reasonClearText, reasonNone, ReasonAuthority, ReasonExpired, ReasonUnnamed, ReasonNotClient, ReasonCertificate}
}

// Reason returns why a handshake failed.
func Reason(err error) string {
	var (
		clear   tls.RecordHeaderError
		verify  *tls.CertificateVerificationError
		unknown x509.UnknownAuthorityError
		invalid x509.CertificateInvalidError
		claims  *identity.RefusalError
	)
	switch {
	case errors.Is(err, errUnnamed):
		return ReasonUnnamed
	case errors.As(err, &claims):
		return ReasonNotClient
	case errors.As(err, &verify):
		switch {
		case errors.As(verify.Err, &unknown):
			return ReasonAuthority
		case errors.As(verify.Err, &invalid) && invalid.Reason == x509.Expired:
			return ReasonExpired
		}
		return ReasonCertificate
	case errors.As(err, &clear):
		if isHTTP(clear.RecordHeader) {
			return reasonClearText
		}
		return reasonHandshake
	case strings.Contains(err.Error(), "client didn't provide a certificate"): // crypto/tls has no type for it
		return reasonNone
	case errors.Is(err, net.ErrClosed):
		return reasonTimeout
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return reasonClosed
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op != "remote error" { // the socket, and not an alert
		return reasonClosed
	}
	return reasonHandshake
}

// isHTTP reports whether a client speaks HTTP without TLS.
func isHTTP(header [5]byte) bool {
	switch string(header[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "PATCH", "DELET", "OPTIO", "CONNE", "TRACE", "PRI *":
		return true
	}
	return false
}

// clearTextAnswer is the answer to a client that speaks HTTP without TLS.
const clearTextAnswer = "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n" +
	`{"error":"this address needs TLS: use https","code":"bad_request"}` + "\n"

// Handshake begins TLS as the server on a connection, as the Site with this index describes.
// If it fails, the caller closes the connection.
func (c *Certificates) Handshake(nc net.Conn, site int) (*tls.Conn, error) {
	config, judged := c.current.Load().sites[site], c.judged.Load()
	below := &ending{Conn: socket.Direct(nc), of: c}
	secured := tls.Server(below, config)
	// The context ends no handshake: the caller closes the connection instead.
	if err := secured.HandshakeContext(context.Background()); err != nil {
		if Reason(err) == reasonClearText {
			_, _ = io.WriteString(nc, clearTextAnswer) // the client may be gone
		}
		return nil, fmt.Errorf("no TLS handshake: %w", err)
	}
	state := secured.ConnectionState()
	c.metrics.handshakes.WithLabelValues(tls.VersionName(state.Version)).Inc()
	if len(state.VerifiedChains) > 0 {
		below.presented = shown(&state)
		below.at(validUntil(state.VerifiedChains))
		if c.judged.Load() != judged { // meanwhile, and perhaps without this one
			if err := c.cfg.Admit(below.presented); err != nil {
				_ = below.Close()
				return nil, fmt.Errorf("no TLS handshake: %w", err)
			}
		}
	}
	return secured, nil
}

// shown returns the certificates by which a client is judged: its own, and those between it and an
// authority, both as TLS has verified them and as the client has sent them. It may leave out one that
// TLS does not need, because --ingress-client-ca has it.
func shown(state *tls.ConnectionState) []*x509.Certificate {
	out := slices.Clip(state.PeerCertificates)
	for _, chain := range state.VerifiedChains {
		out = append(out, chain[1:]...)
	}
	return out
}

// ending is a connection below TLS that ends when the certificate of the client does, or is not
// admitted any more. It is not above TLS because closing it sends no alert, which an unresponsive
// client could delay.
type ending struct {
	net.Conn
	of        *Certificates
	presented []*x509.Certificate // see shown; once the client is admitted

	mu     sync.Mutex
	timer  *time.Timer
	closed bool
}

// at ends the connection at that time, and lets it be judged until then.
func (e *ending) at(end time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	e.timer = time.AfterFunc(time.Until(end), e.end)
	e.of.opened.Lock()
	e.of.admitted[e] = struct{}{}
	e.of.opened.Unlock()
}

// end closes the connection because of the certificate.
func (e *ending) end() {
	e.of.metrics.ended.Inc()
	_ = e.Close() // it may already be closed
}

// NetConn returns the connection below.
func (e *ending) NetConn() net.Conn { return e.Conn }

// Close also stops the timer, and the connection is not judged any more.
func (e *ending) Close() error {
	e.mu.Lock()
	e.closed = true
	if e.timer != nil {
		e.timer.Stop()
		e.of.opened.Lock()
		delete(e.of.admitted, e)
		e.of.opened.Unlock()
	}
	e.mu.Unlock()
	return e.Conn.Close()
}
