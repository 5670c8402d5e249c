package membership

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"syscall"

	"github.com/ringway/ringway/membership/identity"
)

// secureInbound and secureOutbound start TLS on a connection if there are certificates. TLS
// checks only chain, time and usage. The hello after it decides which members belong to the
// cluster, because an initiator never learns from TLS why its certificate was refused.
func (t *transport) secureInbound(conn net.Conn) (greeting, error) {
	if t.identity == nil {
		return greeting{hello: t.hello(), conn: conn}, nil
	}
	protocols := append(slices.Sorted(maps.Keys(t.handlers)), protocolMemberlist)
	g, err := t.secure(t.ctx, tls.Server(conn, t.identity.ServerConfig(t.identity.Policy(identity.Hello), protocols...)))
	return g, refuseClearText(conn, err)
}

func (t *transport) secureOutbound(ctx context.Context, conn net.Conn, protocol string) (greeting, error) {
	if t.identity == nil {
		return greeting{hello: t.hello(), conn: conn}, nil
	}
	expected := identity.Expected{Addr: conn.RemoteAddr().String()}
	g, err := t.secure(ctx, t.identity.Client(conn, t.identity.ClientConfig(t.identity.Policy(identity.Hello), expected, protocol)))
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
		err = fmt.Errorf("%w: the other end closed the connection; does the member there have a certificate?", err)
	}
	return g, err
}

func (t *transport) secure(ctx context.Context, conn *tls.Conn) (greeting, error) {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	if err := conn.HandshakeContext(ctx); err != nil {
		return greeting{}, refusedByAlert(conn.RemoteAddr().String(), fmt.Errorf("TLS with %s: %w", conn.RemoteAddr(), err))
	}
	shown := conn.ConnectionState().PeerCertificates // not empty: the handshake requires one
	claims, err := t.identity.FromCertificate(shown[0])
	if err != nil {
		return greeting{}, fmt.Errorf("TLS with %s: %w", conn.RemoteAddr(), err)
	}
	g := greeting{hello: t.hello(), conn: conn, claims: &claims}
	for _, c := range shown {
		g.chain = append(g.chain, c.Raw)
	}
	return g, nil
}

// refusedByAlert converts a TLS alert of the other end to a typed refusal. In TLS 1.3 the initiator
// receives the alert only after the handshake, when it reads the hello.
func refusedByAlert(addr string, err error) error {
	var refusal *RefusalError
	var alert *net.OpError
	if errors.As(err, &refusal) || !errors.As(err, &alert) || alert.Op != "remote error" {
		return err
	}
	return &RefusalError{Field: fieldCertificate, Addr: addr,
		Cause: fmt.Errorf("certificate refused by the other end (%s): %w: do both have certificates of one authority, the same identity template if any, and right clocks?", addr, alert)}
}

// learn stores the certificate of an admitted member, so that its packets count from now on.
func (t *transport) learn(peer Peer, g greeting) error {
	if t.guard == nil {
		return nil
	}
	if err := t.guard.Certified(g.chain, peer.Epoch, peer.tick); err != nil {
		return fmt.Errorf("certificate of %s (%s): %w", peer.ID, g.conn.RemoteAddr(), err)
	}
	return nil
}

// listUnsigned lists a certified member that was refused because it does not sign its
// gossip, so that operators see which member to upgrade.
func (t *transport) listUnsigned(g greeting, err error) {
	var refusal *RefusalError
	if t.guard == nil || !errors.As(err, &refusal) || refusal.Field != fieldFormat || g.claims.Node != refusal.Node {
		return
	}
	t.guard.ListUnsigned(refusal.Node, refusal.Addr)
}

// closedError is the error of a hello that took too long, or whose place was needed for another
// connection.
type closedError struct {
	reason string
	err    error // that of the closed connection, if any
}

func (e *closedError) Error() string { return fmt.Sprintf("closed (%s): %v", e.reason, e.err) }

// reportRefusal counts and logs a failed hello, once, at the side that notices the failure.
// Strangers can cause failures, so only a typed refusal can be logged as a warning (see
// refusals).
func (t *transport) reportRefusal(direction, addr string, err error) {
	var refusal *RefusalError
	var certificate *identity.RefusalError
	if errors.As(err, &certificate) {
		t.metrics.refused(direction, string(certificate.Field))
		t.logRefusal(direction, addr, &RefusalError{Field: fieldCertificate, Addr: addr, Cause: certificate})
		return
	}
	if !errors.As(err, &refusal) {
		if direction == outbound {
			t.refusals.outlived(addr)
		}
		reason := fieldMalformed
		if closed, ok := errors.AsType[*closedError](err); ok {
			reason = closed.reason
		}
		t.metrics.refused(direction, reason)
		t.logger.Debug("gossip stream dropped", "direction", direction, "addr", addr, "err", err)
		return
	}
	t.metrics.refused(direction, refusal.Field)
	t.logRefusal(direction, addr, refusal)
}
