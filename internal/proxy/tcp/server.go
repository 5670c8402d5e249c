package tcp

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/handshake"
	"github.com/ringway/ringway/internal/metric"
	"github.com/ringway/ringway/internal/wire"
)

// Config describes a Server.
type Config struct {
	// Service is the service of all connections. If it is empty, the server name of the
	// client's TLS handshake names the service.
	Service string
	// Handler carries the sessions; see ingress.Handler. Required.
	Handler http.Handler
	// Prologue reads what comes before the session, such as a header of the PROXY protocol. It
	// may change the RemoteAddr of the connection, and returns why it refuses one, with the
	// reason for Refused. Default: the session begins with the first byte.
	Prologue func(net.Conn) (reason string, err error)
	// HelloTimeout is how long a client may take for the prologue and a ClientHello. Default
	// 10 s.
	HelloTimeout time.Duration
	// Began is called when the service of a connection is known. Default: not called.
	Began func(net.Conn)
	// Refused counts the connections that got no session, by one of Reasons. Required.
	Refused *prometheus.CounterVec
	// Logger gets refused connections at debug level, and a lack of what connections need. Required.
	Logger *slog.Logger
}

// Reasons of a Prologue for the PROXY protocol. ClientShare means that the client that it names has as
// many connections as it may have.
const (
	ProxyMissing   = "proxy_missing"
	ProxyMalformed = "proxy_malformed"
	ClientShare    = "client_share"
)

// Reasons of refusals in addition to the codes of the handler.
const (
	reasonNoHello      = "no_client_hello"
	reasonNotTLS       = "malformed_client_hello"
	reasonNoServerName = "no_server_name"
	reasonCancelled    = "cancelled"
	reasonOther        = "other"
)

var reasons = []string{
	reasonNoHello, reasonNotTLS, reasonNoServerName, reasonCancelled, reasonOther, ProxyMissing, ProxyMalformed, ClientShare,
	string(wire.CodeBadRequest), string(wire.CodeUnknownService), string(wire.CodeUpstreamFailed), string(wire.CodeNoEndpoint), string(wire.CodeNotReady),
	string(wire.CodeOverloaded), string(wire.CodeClientLimit), string(wire.CodeRateLimited), string(wire.CodeBlocked), string(wire.CodeTimeout), string(wire.CodeExhausted), string(wire.CodeCircuitOpen),
}

// NewRefused registers the counter of refused connections.
func NewRefused(reg prometheus.Registerer) *prometheus.CounterVec {
	refused := metric.With(reg).CounterVec("ringway_relay_tcp_refused_total", "Connections of clients that got no TCP session, by reason: a code of ringway_relay_rejections_total, cancelled (the relay stopped), no_client_hello (none came in --client-head-timeout), malformed_client_hello, no_server_name, proxy_missing (a load balancer sent no header of the PROXY protocol, or not in that time), proxy_malformed, client_share (the client that it names has as many connections as it may have), other.", "reason")
	metric.StartAtZero(refused, reasons...)
	return refused
}

// Server accepts connections and opens sessions.
type Server struct {
	cfg    Config
	ctx    context.Context // of all sessions
	cancel context.CancelFunc

	mu      sync.Mutex // guards the fields below
	socket  net.Listener
	closed  bool
	waiting map[net.Conn]struct{} // without a service or a client yet
	all     map[net.Conn]struct{}
	running sync.WaitGroup
}

// New returns a server. It starts nothing.
func New(cfg Config) *Server {
	cfg.HelloTimeout = cmp.Or(cfg.HelloTimeout, 10*time.Second)
	if cfg.Prologue == nil {
		cfg.Prologue = func(net.Conn) (string, error) { return "", nil }
	}
	if cfg.Began == nil {
		cfg.Began = func(net.Conn) {}
	}
	s := &Server{cfg: cfg, waiting: map[net.Conn]struct{}{}, all: map[net.Conn]struct{}{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Serve accepts connections until Shutdown or Close, and returns http.ErrServerClosed when
// the last session has ended.
func (s *Server) Serve(socket net.Listener) error {
	defer s.running.Wait()
	socket = handshake.Lasting(socket, s.cfg.Logger)
	s.mu.Lock()
	s.socket = socket
	closed := s.closed
	s.mu.Unlock()
	if closed {
		_ = socket.Close()
		return http.ErrServerClosed
	}
	for {
		conn, err := socket.Accept()
		switch {
		case err == nil:
			if s.track(conn) {
				go s.serve(conn)
			}
		case s.isClosed():
			return http.ErrServerClosed
		default:
			return fmt.Errorf("tcp: accept on %s: %w", socket.Addr(), err)
		}
	}
}

// track adds a connection. After Shutdown it closes the connection and returns false.
func (s *Server) track(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = conn.Close()
		return false
	}
	s.running.Add(1)
	s.all[conn] = struct{}{}
	s.waiting[conn] = struct{}{}
	return true
}

// begins records that the service and the client of the connection are known. It returns
// false after Shutdown, which has closed the connection.
func (s *Server) begins(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, waits := s.waiting[conn]
	delete(s.waiting, conn)
	return waits
}

func (s *Server) untrack(conn net.Conn) {
	s.mu.Lock()
	delete(s.waiting, conn)
	delete(s.all, conn)
	s.mu.Unlock()
	s.running.Done()
}

func (s *Server) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// Shutdown ends the intake and closes the connections whose session does not begin yet. It
// does not wait for sessions.
func (s *Server) Shutdown(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for conn := range s.waiting {
		_ = conn.Close()
		delete(s.waiting, conn)
	}
	if s.socket != nil {
		_ = s.socket.Close() // may be closed already
	}
	return nil
}

// Close ends the intake and all sessions.
func (s *Server) Close() error {
	err := s.Shutdown(s.ctx)
	s.cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn := range s.all {
		_ = conn.Close()
	}
	return err
}
