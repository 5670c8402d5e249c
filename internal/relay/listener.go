package relay

import (
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringway/ringway/internal/handshake"
	"github.com/ringway/ringway/internal/presence"
	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/proxy/downstream"
	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/proxy/upstream"
)

// ClientConfig describes the connections of clients, and HeadTimeout also those of the relays that
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
	silent := upstream.BehindRelay(cfg.ProgressTimeout)
	dropped := func(reason string) func() { return m.dropped.WithLabelValues(l.name, reason).Inc }
	l.server = downstream.New(downstream.Config{
		Handler: hooks.Handler, Prologue: hooks.Prologue, ConnContext: hooks.ConnContext, ConnState: hooks.ConnState, Until: hooks.Until, HeadTimeout: cfg.Clients.HeadTimeout, IdleTimeout: hooks.IdleTimeout, SendTimeout: silent, MaxHead: hooks.MaxHead,
		MaxStreams: hooks.MaxStreams, Shared: hooks.Shared,
		Malformed: dropped("malformed"), Incomplete: dropped("incomplete"), Abusive: dropped("abusive"), Stalled: dropped("stalled"),
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
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: defaultClients.MaxStreams},
	}
	l.server = server
	source := cfg.Membership.Identity
	if err := cfg.Admin.Serve(server, handler, process.AccessConfig{Identity: source, Logger: cfg.Logger, Registerer: cfg.Registry}); err != nil {
		return err
	}
	l.socket = handshake.Lasting(l.socket, cfg.Logger)
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
// can connect, and its workers for sessions, and no longer than their certificate is valid.
func (l *listener) secure(cfg *Config, m *connMetrics, sessions *presence.Server) {
	l.admission = ingress.AdmitPeers(handshake.ListenerConfig{Socket: l.socket, Source: cfg.Membership.Identity, Pending: cfg.PendingPeers, Divert: sessions.Divert, Refused: m.refused, Logger: cfg.Logger})
}

// serve answers on the socket until the server is closed.
func (l *listener) serve() error {
	if l.admission != nil {
		var admitting sync.WaitGroup
		defer admitting.Wait()
		admitting.Go(l.admission.Run)
		return l.server.Serve(l.admission)
	}
	return l.server.Serve(l.socket)
}

// listen binds addr, the value of the setting NAME-addr.
func listen(name, addr string) (net.Listener, error) {
	ln, err := process.Listen(addr)
	if err != nil {
		return nil, fmt.Errorf("listen for %s on %s (--%s-addr): %w", name, addr, name, err)
	}
	return ln, nil
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
	if f.closing != nil && f.closing() && !upstream.Upgrades(r) { // the answer of a tunnel needs its own Connection field
		w.Header().Set("Connection", "close") // over HTTP/2 the server sends GOAWAY instead
	}
	(*f.handler.Load()).ServeHTTP(w, r)
}
