package relay

import (
	"bytes"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/ringway/ringway/internal/admin"
	"github.com/ringway/ringway/membership/identity"
)

const (
	// headerTimeout bounds how long a client may take to send a request's head.
	headerTimeout = 10 * time.Second
	// idleTimeout closes connections that clients keep but do not use.
	idleTimeout = 2 * time.Minute
	// maxHeader bounds a request's head.
	maxHeader = 64 << 10
	// maxStreams bounds the requests on one HTTP/2 connection.
	maxStreams = 1000
)

// newServer serves HTTP/1.1 and clear-text HTTP/2 on one port.
func newServer(handler http.Handler, logger *slog.Logger) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler: handler, Protocols: protocols,
		ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		HTTP2:    &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		ErrorLog: log.New(debugWriter{logger}, "", 0),
	}
}

// secure puts mutual TLS in front of the peer listener: only relays and gates of
// this cluster come in, and stay no longer than their certificate counts.
func (l *listener) secure(source *identity.Source, m *connMetrics, logger *slog.Logger) {
	policy := source.Policy(identity.DataPlane)
	policy.Only = []identity.Role{identity.RoleRelay, identity.RoleGate}
	l.admission = identity.NewListener(identity.ListenerConfig{
		Socket: l.socket, Source: source, TLS: source.ServerConfig(policy, "h2", "http/1.1"),
		Allowed: "relays and gates of this cluster and environment",
		Refused: m.refused, Logger: logger,
	})
	l.server.Protocols = new(http.Protocols)
	l.server.Protocols.SetHTTP1(true)
	l.server.Protocols.SetHTTP2(true)
}

// serve answers on the socket until the server is closed.
func (l *listener) serve() error {
	if l.admission != nil {
		var admitting sync.WaitGroup
		defer admitting.Wait()
		admitting.Go(l.admission.Run)
		return l.server.Serve(l.admission)
	}
	if l.server.TLSConfig != nil {
		return l.server.ServeTLS(l.socket, "", "")
	}
	return l.server.Serve(l.socket)
}

// debugWriter keeps what clients can provoke out of the log of normal days.
type debugWriter struct{ logger *slog.Logger }

func (w debugWriter) Write(line []byte) (int, error) {
	w.logger.Debug("http server: " + string(bytes.TrimSpace(line)))
	return len(line), nil
}

// listen binds addr and counts what is not HTTP on it.
func listen(name, addr string, m *connMetrics) (net.Listener, error) {
	ln, err := admin.Listen(addr)
	if err != nil {
		return nil, fmt.Errorf("listen for %s on %s: %w", name, addr, err)
	}
	return m.counting(name, ln), nil
}

// counting counts on a listener what is not HTTP.
func (m *connMetrics) counting(name string, ln net.Listener) countingListener {
	return countingListener{ln, m.accepted.WithLabelValues(name), m.dropped.WithLabelValues(name, "malformed"), m.dropped.WithLabelValues(name, "incomplete")}
}

type connMetrics struct {
	accepted, dropped *prometheus.CounterVec
	refused           *prometheus.CounterVec // by the peer listener
}

func newConnMetrics(reg prometheus.Registerer) *connMetrics {
	f := promauto.With(reg)
	m := &connMetrics{
		accepted: f.NewCounterVec(prometheus.CounterOpts{
			Name: "ringway_relay_connections_total", Help: "Connections accepted, by listener.",
		}, []string{"listener"}),
		dropped: f.NewCounterVec(prometheus.CounterOpts{
			Name: "ringway_relay_connections_dropped_total", Help: "Connections dropped because what came was no HTTP request (malformed) or no whole one in time (incomplete), or because a newer connection of a client took the place of one that waited for its next request (replaced), by listener.",
		}, []string{"listener", "reason"}),
		refused: f.NewCounterVec(prometheus.CounterOpts{
			Name: "ringway_relay_peers_refused_total", Help: "Connections refused by the peer listener of a relay with a certificate, by reason: that of the certificate, handshake (no or broken TLS), timeout, too_many or too_many_from_source (newer ones needed the place).",
		}, []string{"reason"}),
	}
	for _, reason := range identity.ListenerReasons() {
		m.refused.WithLabelValues(reason)
	}
	return m
}

type countingListener struct {
	net.Listener
	accepted, malformed, incomplete prometheus.Counter
}

func (l countingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.accepted.Inc()
	return &countingConn{Conn: conn, malformed: l.malformed, incomplete: l.incomplete}, nil
}

// countingConn sees what net/http shows nobody: it answers a request that it
// cannot parse on the connection itself, past every handler and hook.
type countingConn struct {
	net.Conn
	malformed, incomplete prometheus.Counter
	read, wrote, closed   atomic.Bool
}

// parseErrorHeaders is how net/http ends the head of such an answer. Answers of
// handlers carry a Date.
var parseErrorHeaders = []byte("\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n")

func (c *countingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && !c.read.Load() {
		c.read.Store(true)
	}
	return n, err
}

func (c *countingConn) Write(b []byte) (int, error) {
	if !c.wrote.Load() {
		c.wrote.Store(true)
	}
	if len(b) < 256 && bytes.HasPrefix(b, []byte("HTTP/1.1 ")) && bytes.Contains(b, parseErrorHeaders) {
		c.malformed.Inc()
	}
	return c.Conn.Write(b)
}

// CloseWrite is needed by tunnels, which end one direction at a time.
func (c *countingConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

func (c *countingConn) Close() error {
	if c.closed.CompareAndSwap(false, true) && c.read.Load() && !c.wrote.Load() {
		c.incomplete.Inc()
	}
	return c.Conn.Close()
}
