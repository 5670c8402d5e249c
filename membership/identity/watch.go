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

// maxNamed bounds the nodes that one log line names.
const maxNamed = 10

// Watch wraps a connection that TLS will be put on. Once a handshake with one of our
// configurations has succeeded on it, Run closes it when the other end's certificate
// no longer counts. Close what Watch returns, or what lies on top of it, not what
// lies below.
func (s *Source) Watch(conn net.Conn) net.Conn { return &watched{Conn: conn, registry: &s.connections} }

// Listener watches every connection of a listener.
func (s *Source) Listener(inner net.Listener) net.Listener { return watchedListener{inner, s} }

// Client is tls.Client for a configuration of ClientConfig, and watches the
// connection. A tls.Client made otherwise is not watched: crypto/tls does not tell a
// configuration which connection it is used for.
func (s *Source) Client(conn net.Conn, config *tls.Config) *tls.Conn {
	w, ok := conn.(*watched)
	if !ok {
		w = &watched{Conn: conn, registry: &s.connections}
	}
	config = config.Clone()
	config.VerifyConnection = w.showing(config.VerifyConnection, Outbound)
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

// watched is a connection below TLS. It lies there, and not on top, because
// net/http wants a *tls.Conn, and because closing it needs no TLS alert, which a
// silent other end could delay.
type watched struct {
	net.Conn
	registry *registry
	closed   bool // under the registry's lock

	// What the other end has shown; set once, when the handshake has succeeded.
	presented []*x509.Certificate
	direction Direction
	judged    standing // under Source.reload
}

// registry holds the open connections whose other end has shown a certificate. It
// is as large as the listeners and pools of the process let it be.
type registry struct {
	mu   sync.Mutex
	open map[*watched]struct{}
}

// showing is verify, and begins the watch when it finds nothing wrong.
func (w *watched) showing(verify func(tls.ConnectionState) error, direction Direction) func(tls.ConnectionState) error {
	return func(state tls.ConnectionState) error {
		err := verify(state)
		if err == nil {
			w.show(state.PeerCertificates, direction)
		}
		return err
	}
}

// show begins the watch, unless the connection was closed meanwhile. The zero standing
// has it judged at the next look: the deny list may have changed since the handshake.
func (w *watched) show(presented []*x509.Certificate, direction Direction) {
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

// Close ends the watch, too.
func (w *watched) Close() error {
	w.registry.mu.Lock()
	w.closed = true
	delete(w.registry.open, w)
	w.registry.mu.Unlock()
	return w.Conn.Close()
}

// SyscallConn is that of the connection: a pool looks at its socket.
func (w *watched) SyscallConn() (syscall.RawConn, error) {
	if raw, ok := w.Conn.(syscall.Conn); ok {
		return raw.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// judgeOpen closes the open connections whose other end's certificate has ended, was
// put on the deny list, or no longer leads to one of our authorities.
func (s *Source) judgeOpen() {
	s.reload.Lock() // one judge at a time: it writes down what it found
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
		_ = w.Close() // it may be closed already
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

// judgeAgain is two comparisons unless authorities or deny list have changed.
func (t trust) judgeAgain(w *watched) *RefusalError {
	if w.judged.until.IsZero() || w.judged.trusts != t.trusts {
		use := x509.ExtKeyUsageServerAuth
		if w.direction == Inbound {
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
		claims, _ := FromCertificate(w.presented[0]) // gossip and admin listeners let in a certificate without
		return ended(claims.Node, w.judged.until)
	}
	return nil
}
