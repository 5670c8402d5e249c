package identity

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"slices"
	"sync"
	"syscall"
)

// Watch wraps a connection on which TLS will run. After a successful handshake with one of
// our configurations, Run closes the connection when the peer's certificate is not valid
// any more. Close the connection that Watch returns, or a layer above it, not the one
// below.
func (s *Source) Watch(conn net.Conn) net.Conn { return &watched{Conn: conn, registry: &s.connections} }

// Listener watches every connection of a listener.
func (s *Source) Listener(inner net.Listener) net.Listener { return watchedListener{inner, s} }

// Client is tls.Client for a configuration of ClientConfig, and watches the connection. A
// tls.Client made otherwise is not watched, because a configuration of crypto/tls does not
// know the connection that it is used for.
func (s *Source) Client(conn net.Conn, config *tls.Config) *tls.Conn {
	w, ok := conn.(*watched)
	if !ok {
		w = &watched{Conn: conn, registry: &s.connections}
	}
	config = config.Clone()
	config.VerifyConnection = w.showing(config.VerifyConnection, outbound)
	return tls.Client(w, config)
}

type watchedListener struct {
	net.Listener
	source *Source
}

func (l watchedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.source.Watch(conn), nil
}

// watched is a connection below TLS. It is not above TLS because net/http requires a
// *tls.Conn, and because closing it sends no TLS alert, which an unresponsive peer could
// delay.
type watched struct {
	net.Conn
	registry *registry
	closed   bool // guarded by the registry's lock

	// The certificates of the peer; set once, after the handshake has succeeded.
	presented []*x509.Certificate
	direction direction
	judged    standing // guarded by Source.reload
}

// NetConn returns the connection below, so that its socket can be checked.
func (w *watched) NetConn() net.Conn { return w.Conn }

// registry holds the open connections whose peers have shown a certificate. The listeners
// and pools of the process limit its size.
type registry struct {
	mu   sync.Mutex
	open map[*watched]struct{}
}

// showing wraps verify: if verify succeeds, it begins to watch the connection.
func (w *watched) showing(verify func(tls.ConnectionState) error, direction direction) func(tls.ConnectionState) error {
	return func(state tls.ConnectionState) error {
		err := verify(state)
		if err == nil {
			w.show(state.PeerCertificates, direction)
		}
		return err
	}
}

// show begins to watch, unless the connection was closed in the meantime. Because of the
// zero standing, the next check examines the connection: the deny list may have changed
// since the handshake.
func (w *watched) show(presented []*x509.Certificate, direction direction) {
	w.registry.mu.Lock()
	defer w.registry.mu.Unlock()
	if w.closed {
		return
	}
	w.presented, w.direction = presented, direction
	if w.registry.open == nil {
		w.registry.open = make(map[*watched]struct{})
	}
	w.registry.open[w] = struct{}{}
}

// Close also ends the watch.
func (w *watched) Close() error {
	w.registry.mu.Lock()
	w.closed = true
	delete(w.registry.open, w)
	w.registry.mu.Unlock()
	return w.Conn.Close()
}

// SyscallConn returns that of the wrapped connection: a pool checks its socket.
func (w *watched) SyscallConn() (syscall.RawConn, error) {
	if raw, ok := w.Conn.(syscall.Conn); ok {
		return raw.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// judgeOpen closes the open connections whose peer's certificate has expired, was put on
// the deny list, or does not lead to one of our authorities any more.
func (s *Source) judgeOpen() {
	s.reload.Lock() // one check at a time, because the results are stored
	defer s.reload.Unlock()
	s.connections.mu.Lock()
	open := make([]*watched, 0, len(s.connections.open))
	for w := range s.connections.open {
		open = append(open, w)
	}
	s.connections.mu.Unlock()
	t := trust{material: s.current.Load(), now: s.cfg.Now()}
	closed, nodes := map[Reason]int{}, map[Reason][]string{}
	for _, w := range open {
		refusal := t.judgeAgain(w)
		if refusal == nil {
			continue
		}
		_ = w.Close() // it may already be closed
		s.metrics.closed.WithLabelValues(string(w.direction), string(refusal.Field)).Inc()
		closed[refusal.Field]++
		if node := refusal.Node; !slices.Contains(nodes[refusal.Field], node) && len(nodes[refusal.Field]) < maxNamed {
			nodes[refusal.Field] = append(nodes[refusal.Field], node)
		}
	}
	for reason, n := range closed {
		s.cfg.Logger.Warn("open connections closed: the certificate of the other end no longer counts",
			"reason", reason, "connections", n, "nodes", nodes[reason])
	}
}

// judgeAgain costs two comparisons unless authorities or deny list have changed.
func (t trust) judgeAgain(w *watched) *RefusalError {
	if w.judged.until.IsZero() || w.judged.trusts != t.trusts {
		use := x509.ExtKeyUsageServerAuth
		if w.direction == inbound {
			use = x509.ExtKeyUsageClientAuth
		}
		until, err := t.check(w.presented, use)
		var refusal *RefusalError
		if errors.As(err, &refusal) {
			return refusal
		}
		w.judged = standing{trusts: t.trusts, until: until}
	}
	if t.now.After(w.judged.until) {
		claims, _ := t.template.claims(w.presented[0]) // gossip and admin listeners let in a certificate without
		return ended(claims.Node, w.judged.until)
	}
	return nil
}
