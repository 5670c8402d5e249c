package relay

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"

	"github.com/ringway/ringway/internal/handshake"
	"github.com/ringway/ringway/internal/metric"
	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/proxy/downstream"
	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/relay/tracing"
	"github.com/ringway/ringway/internal/settings"
)

// ClientConfig describes the connections of clients and, except IdleTimeout, of the relays that
// forward to this one. All fields are required; see defaultClients.
type ClientConfig struct {
	// HeadTimeout is how long a client may take to send a request's head.
	HeadTimeout time.Duration
	// IdleTimeout is how long a connection may wait for its next request.
	IdleTimeout time.Duration
	// MaxHead bounds a request's head in bytes.
	MaxHead int
	// MaxStreams bounds the requests in flight on one HTTP/2 connection.
	MaxStreams int
}

// defaultClients also holds for the admin API.
var defaultClients = ClientConfig{
	HeadTimeout: downstream.DefaultHeadTimeout, IdleTimeout: downstream.DefaultIdleTimeout, MaxHead: downstream.DefaultMaxHead, MaxStreams: downstream.DefaultMaxStreams,
}

// serveClients makes the server of HTTP/1.1 and HTTP/2. hooks has the handler and what else
// differs between the listeners.
func (l *listener) serveClients(cfg *Config, m *connMetrics, hooks downstream.Config) {
	silent, limits := upstream.BehindRelay(cfg.ProgressTimeout), &cfg.Clients
	dropped := func(reason string) func() { return m.dropped.WithLabelValues(l.name, reason).Inc }
	l.server = downstream.New(downstream.Config{
		Handler: hooks.Handler, Prologue: hooks.Prologue, ConnContext: hooks.ConnContext, ConnState: hooks.ConnState, HeadTimeout: limits.HeadTimeout, IdleTimeout: hooks.IdleTimeout, SendTimeout: silent, MaxHead: limits.MaxHead,
		MaxStreams: limits.MaxStreams,
		Malformed:  dropped("malformed"), Incomplete: dropped("incomplete"), Abusive: dropped("abusive"), Stalled: dropped("stalled"),
		Logger: cfg.Logger,
	})
}

// serveOperators makes the server of the admin API.
func (l *listener) serveOperators(cfg *Config, handler *http.ServeMux) error {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{
		Protocols: protocols, ReadHeaderTimeout: defaultClients.HeadTimeout, IdleTimeout: defaultClients.IdleTimeout, MaxHeaderBytes: defaultClients.MaxHead,
		HTTP2:    &http.HTTP2Config{MaxConcurrentStreams: defaultClients.MaxStreams},
		ErrorLog: log.New(debugWriter{cfg.Logger}, "", 0),
	}
	l.server = server
	source := cfg.Membership.Identity
	if err := cfg.Admin.Serve(server, handler, process.AccessConfig{Identity: source, Logger: cfg.Logger, Registerer: cfg.Registry}); err != nil {
		return err
	}
	if server.TLSConfig != nil {
		l.socket = source.Listener(l.socket)
		l.server = serverTLS{server}
	}
	return nil
}

// serverTLS is a server that begins TLS itself.
type serverTLS struct{ *http.Server }

func (s serverTLS) Serve(l net.Listener) error { return s.ServeTLS(l, "", "") }

// secure requires mutual TLS on the peer listener: only relays and gates of this cluster
// can connect, and no longer than their certificate is valid.
func (l *listener) secure(cfg *Config, m *connMetrics) {
	l.admission = ingress.AdmitPeers(handshake.ListenerConfig{Socket: l.socket, Source: cfg.Membership.Identity, Pending: cfg.PendingPeers, Refused: m.refused, Logger: cfg.Logger})
}

// undiverted serves all connections of a listener.
func undiverted(l net.Listener) net.Listener { return l }

// serve answers on the socket until the server is closed. Divert takes connections out that are not
// those of requests.
func (l *listener) serve(divert func(net.Listener) net.Listener) error {
	if l.admission != nil {
		var admitting sync.WaitGroup
		defer admitting.Wait()
		admitting.Go(l.admission.Run)
		return l.server.Serve(divert(l.admission))
	}
	return l.server.Serve(l.socket)
}

// debugWriter logs at debug level the errors that clients can cause.
type debugWriter struct{ logger *slog.Logger }

func (w debugWriter) Write(line []byte) (int, error) {
	w.logger.Debug("http server: " + string(bytes.TrimSpace(line)))
	return len(line), nil
}

// listen binds addr, which is that of the setting NAME-addr.
func listen(name, addr string) (net.Listener, error) {
	ln, err := process.Listen(addr)
	if err != nil {
		return nil, fmt.Errorf("listen for %s on %s (--%s-addr): %w", name, addr, name, err)
	}
	return ln, nil
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

// lateListener holds a TCP address from the start and accepts connections after open.
// Until then the kernel refuses them, if it can hold an address without listening (see
// bind): clients then use another relay immediately. It is safe for concurrent use.
type lateListener struct {
	net.Listener               // bound
	listen       func() error  // starts to let connections in
	passed       bool          // by the service manager, which keeps a copy of it
	opened       chan struct{} // closed by open
	closed       chan struct{} // closed by Close
	opening      sync.Once
	closing      sync.Once
}

// listenLate binds addr.
func listenLate(addr string) (*lateListener, error) {
	socket, listen, err := bind(addr)
	if err != nil {
		return nil, fmt.Errorf("%w: is another process on this port?", err)
	}
	return &lateListener{Listener: socket, listen: listen, opened: make(chan struct{}), closed: make(chan struct{})}, nil
}

// passedListener returns the listener of a socket that was passed to this process, nil
// without one. Its connections wait in the kernel until open.
func passedListener(socket net.Listener) *lateListener {
	if socket == nil {
		return nil
	}
	return &lateListener{Listener: socket, passed: true, listen: func() error { return nil }, opened: make(chan struct{}), closed: make(chan struct{})}
}

// open lets connections in. It is called once, and fails if another process has begun to
// listen on the address.
func (l *lateListener) open() error {
	if err := l.listen(); err != nil {
		return fmt.Errorf("listen on %s: %w: is another process on this port?", l.Addr(), err)
	}
	l.opening.Do(func() { close(l.opened) })
	return nil
}

// isOpen reports whether connections can come in.
func (l *lateListener) isOpen() bool {
	select {
	case <-l.opened:
		return true
	default:
		return false
	}
}

// Accept waits until the listener is open, then for a connection.
func (l *lateListener) Accept() (net.Conn, error) {
	select {
	case <-l.opened:
		return l.Listener.Accept()
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// refuse makes the kernel ignore new connections, if it can, so that none waits to be
// accepted when the listener is closed: the kernel would reset it. Connections that are
// being opened are still accepted. A client that begins one meanwhile tries again after a
// second, and is refused. A socket that was passed to this process is left alone: its
// connections wait for the next process.
func (l *lateListener) refuse() {
	if l.passed {
		return
	}
	if raw, ok := l.Listener.(syscall.Conn); ok {
		ignoreNew(raw) // without it a few connections are reset
	}
}

// pending reports whether a connection waits to be accepted.
func (l *lateListener) pending() bool {
	raw, ok := l.Listener.(syscall.Conn)
	return ok && !l.passed && hasPending(raw)
}

// Close releases the address. A second call returns no error, because a stop closes the
// listener before the server does.
func (l *lateListener) Close() (err error) {
	l.closing.Do(func() {
		close(l.closed)
		err = l.Listener.Close()
	})
	return err
}

// front is the handler of a listener, which a reload may replace while requests are in
// flight. It is safe for concurrent use.
type front struct {
	handler atomic.Pointer[http.Handler]
	// closing reports whether answers end their connection, so that clients use another
	// relay. Nil: they never do.
	closing func() bool
}

func (f *front) serve(handler http.Handler) { f.handler.Store(&handler) }

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f.closing != nil && f.closing() && r.Header["Upgrade"] == nil { // the answer of a tunnel needs its own Connection field
		w.Header().Set("Connection", "close") // over HTTP/2 the server sends GOAWAY instead
	}
	(*f.handler.Load()).ServeHTTP(w, r)
}

// lastSpans is how long a stop waits for the collector.
const lastSpans = 3 * time.Second

// startTracing returns the tracer, nil if requests are not traced.
func (r *Relay) startTracing() (ingress.Tracer, error) {
	cfg := r.cfg.Tracing
	if cfg.Endpoint == "" {
		return nil, nil
	}
	m := r.cfg.Membership
	cfg.Logger, cfg.Registerer = r.cfg.Logger, r.cfg.Registry
	cfg.Resource = []attribute.KeyValue{
		attribute.String("service.name", "ringway-"+string(m.Role)), attribute.String("service.namespace", m.Cluster),
		attribute.String("service.instance.id", m.ID), attribute.String("service.version", process.Version()),
		attribute.String("deployment.environment.name", m.Environment),
	}
	if m.Datacenter != "" {
		cfg.Resource = append(cfg.Resource, attribute.String("cloud.availability_zone", m.Datacenter))
	}
	var err error
	if r.tracing, err = tracing.Start(cfg); err != nil {
		return nil, err
	}
	return tracing.Requests(r.tracing.Tracer()), nil
}

// endTracing sends the last spans. A collector that does not answer causes no error.
func (r *Relay) endTracing() error {
	if r.tracing == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), lastSpans)
	defer cancel()
	if err := r.tracing.Close(ctx); err != nil {
		r.cfg.Logger.Warn("the last spans were not sent", "err", err)
	}
	return nil
}

// collectorURL is the rule of a setting.
var collectorURL = settings.Rule[string]{
	Allowed: "a URL, http:// or https://, without a user",
	Holds:   func(endpoint string) bool { return tracing.CheckEndpoint(endpoint) == nil },
}
