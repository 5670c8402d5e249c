package relay

import (
	"bytes"
	"net"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/metric"
	"github.com/ringway/ringway/internal/proxy/ingress"
)

// connMetrics count the connections of all listeners.
type connMetrics struct {
	accepted, dropped *prometheus.CounterVec
	refused           *prometheus.CounterVec // by the peer listener
	refusedClients    *prometheus.CounterVec // by the ingress, before a request
}

func newConnMetrics(reg prometheus.Registerer) *connMetrics {
	f := metric.With(reg)
	m := &connMetrics{
		accepted:       f.CounterVec("ringway_relay_connections_total", "Connections accepted, by listener.", "listener"),
		dropped:        f.CounterVec("ringway_relay_connections_dropped_total", "Connections dropped because what came was no HTTP request (malformed) or no whole one in time (incomplete), because an HTTP/2 connection sent too much that costs and carries nothing (abusive) or accepted no byte for the progress timeout (stalled), or because a newer connection of a client took the place of one that waited for its next request (replaced), or because its client has as many connections as it may have, all of them in use (client_share), by listener.", "listener", "reason"),
		refused:        ingress.NewRefusedPeers(reg),
		refusedClients: f.CounterVec("ringway_relay_ingress_refused_total", "Connections of clients that the ingress ended before their first request, by reason: handshake (broken TLS, or no version or algorithm in common), closed (by the client), timeout (--client-head-timeout, or a newer connection needed the place), clear_text (HTTP without TLS), and of the client certificate: no_certificate, unknown_authority, expired (or not valid yet), unnamed (no name that can be used), certificate (another fault); not_a_client (a certificate of the fleet that is none of a client of this cluster and environment: --ingress-client-claims); client_share (the client that a load balancer names has as many connections as it may have); too_fast_from_source (its address begins more TLS handshakes per second than one client may); proxy_missing and proxy_malformed: of the header of the PROXY protocol from a network of --proxy-protocol-from.", "reason"),
	}
	metric.StartAtZero(m.refusedClients, refusals()...)
	return m
}

// counting returns a listener that counts its connections.
func (m *connMetrics) counting(name string, ln net.Listener) net.Listener {
	return countingListener{ln, m.accepted.WithLabelValues(name)}
}

// countingDropped returns a listener that counts its connections, and those that are not
// HTTP, for a server of net/http.
func (m *connMetrics) countingDropped(name string, ln net.Listener) net.Listener {
	return droppedListener{m.counting(name, ln), m.dropped.WithLabelValues(name, "malformed"), m.dropped.WithLabelValues(name, "incomplete")}
}

type countingListener struct {
	net.Listener
	accepted prometheus.Counter
}

func (l countingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.accepted.Inc()
	}
	return conn, err
}

type droppedListener struct {
	net.Listener
	malformed, incomplete prometheus.Counter
}

func (l droppedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &countingConn{Conn: conn, malformed: l.malformed, incomplete: l.incomplete}, nil
}

// countingConn detects what net/http reports to no handler or hook: it answers a request
// that it cannot parse directly on the connection.
type countingConn struct {
	net.Conn
	malformed, incomplete prometheus.Counter
	read, wrote, closed   atomic.Bool
}

// parseErrorHeaders is the end of the head of such an answer by net/http. Answers of
// handlers have a Date field.
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

func (c *countingConn) Close() error {
	if c.closed.CompareAndSwap(false, true) && c.read.Load() && !c.wrote.Load() {
		c.incomplete.Inc()
	}
	return c.Conn.Close()
}
