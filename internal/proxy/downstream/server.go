package downstream

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringway/ringway/internal/handshake"
)

// These limits suit browsers, front proxies and other relays.
const (
	DefaultHeadTimeout = 10 * time.Second
	DefaultIdleTimeout = 2 * time.Minute
	DefaultMaxHead     = 64 << 10
	DefaultMaxStreams  = 1000
)

// Config describes a Server.
type Config struct {
	// Handler answers the requests. Required. See the rules of the package.
	Handler http.Handler
	// HeadTimeout bounds the time from the first byte of a request to the end of its head, and
	// from the opening of a connection to its first byte. Default 0: no bound.
	HeadTimeout time.Duration
	// IdleTimeout is how long a connection may wait for its next request. Default 0: no bound.
	IdleTimeout time.Duration
	// SendTimeout bounds how long the last bytes of an answer may wait for the client, after the
	// handler has returned, and over HTTP/2 half of the time for which any bytes may wait. Default 0: no
	// bound.
	SendTimeout time.Duration
	// MaxHead bounds a request's head in bytes. Default: http.DefaultMaxHeaderBytes, also where the
	// clients are relays: these have bounded it, in units that HTTP/2 counts differently.
	MaxHead int
	// MaxStreams bounds the requests in flight on one connection of HTTP/2. Default DefaultMaxStreams.
	MaxStreams int
	// Shared reports whether a connection of HTTP/2 has requests of many clients: see
	// http2.Config.Shared. It is called after the prologue. Default: none has.
	Shared func(net.Conn) bool
	// Prologue prepares a connection before its first request, and may read from it and put TLS
	// around it. It returns the connection to serve; the server closes the one that it was given
	// if it fails. HeadTimeout bounds it, by closing the socket. The goroutine of the connection
	// calls it, so that a slow client delays no other. Default: connections are served as they
	// are accepted.
	Prologue func(net.Conn) (net.Conn, error)
	// ConnContext returns the context whose values the contexts of the requests of a connection
	// have. It is called once, after the prologue and the TLS handshake. Default: contexts have
	// no values.
	ConnContext func(net.Conn) context.Context
	// Until returns when a connection begins to end: from then on the next answer of HTTP/1.1 ends it, and
	// over HTTP/2 the client is told to open another one. It is called once, after the TLS handshake;
	// the zero time is never. Default: never.
	Until func(net.Conn) time.Time
	// ConnState is called when a connection changes its state, as by net/http. It must not
	// block. Default: not called.
	ConnState func(net.Conn, http.ConnState)
	// Malformed is called for each request that is refused because it is no valid HTTP.
	// Default: not called.
	Malformed func()
	// Incomplete is called for each connection that ends within the head of a request.
	// Default: not called.
	Incomplete func()
	// Abusive is called for each HTTP/2 connection that is ended because it sent too much that
	// costs and carries nothing, Stalled for each that is ended because it accepted no byte for
	// twice SendTimeout. Default: not called.
	Abusive, Stalled func()
	// Logger gets the errors that clients can cause, at debug level, a lack of what connections need, and
	// panics. Required.
	Logger *slog.Logger
}

// Server serves the connections of clients. It is safe for concurrent use.
type Server struct {
	cfg   Config
	epoch time.Time
	clock atomic.Int64 // the time since epoch at the last check, which is exact enough for limits
	quits atomic.Bool  // answers end their connections

	restAfter time.Duration

	mu        sync.Mutex // guards the fields below
	listeners map[net.Listener]struct{}
	conns     []*conn // each knows its place
	watching  bool    // the watch runs
	stopping  bool
	running   sync.WaitGroup // of the watch
}

// OfRelays is the Config.Shared of a server whose clients are all relays.
func OfRelays(net.Conn) bool { return true }

// New returns a server.
func New(cfg Config) *Server {
	if cfg.MaxHead == 0 {
		cfg.MaxHead = http.DefaultMaxHeaderBytes
	}
	if cfg.MaxStreams == 0 {
		cfg.MaxStreams = DefaultMaxStreams
	}
	for _, f := range []*func(){&cfg.Malformed, &cfg.Incomplete, &cfg.Abusive, &cfg.Stalled} {
		if *f == nil {
			*f = func() {}
		}
	}
	if cfg.Shared == nil {
		cfg.Shared = func(net.Conn) bool { return false }
	}
	if cfg.ConnState == nil {
		cfg.ConnState = func(net.Conn, http.ConnState) {}
	}
	s := &Server{cfg: cfg, epoch: time.Now(), restAfter: restAfter, listeners: map[net.Listener]struct{}{}}
	return s
}

// Serve accepts connections until Shutdown or Close, and then returns http.ErrServerClosed. It returns
// another error only if the listener is closed before: see handshake.Lasting.
// The connections of a TLS listener are of type *tls.Conn.
func (s *Server) Serve(l net.Listener) error {
	l = handshake.Lasting(l, s.cfg.Logger)
	if !s.enter(l) {
		_ = l.Close()
		return http.ErrServerClosed
	}
	defer s.leave(l)
	for {
		nc, err := l.Accept()
		if err != nil {
			if s.stops() {
				return http.ErrServerClosed
			}
			return err
		}
		c := newConn(s, nc)
		s.cfg.ConnState(nc, http.StateNew)
		if !s.add(c) {
			_ = nc.Close()
			s.cfg.ConnState(nc, http.StateClosed)
			continue
		}
		go c.serve()
	}
}

// enter records a listener.
func (s *Server) enter(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return false
	}
	s.listeners[l] = struct{}{}
	return true
}

func (s *Server) leave(l net.Listener) {
	_ = l.Close() // a second time after Shutdown
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.listeners, l)
}

func (s *Server) stops() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopping
}

// add records a connection and starts the watch if it is the first. It returns false if the
// server stops.
func (s *Server) add(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return false
	}
	c.place = len(s.conns)
	s.conns = append(s.conns, c)
	if !s.watching {
		s.watching = true
		s.clock.Store(int64(time.Since(s.epoch)))
		s.running.Go(s.watch)
	}
	c.since.Store(s.clock.Load())
	return true
}

// remove forgets a connection that ended or has another owner.
func (s *Server) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.place < 0 {
		return
	}
	last := len(s.conns) - 1
	s.conns[c.place] = s.conns[last]
	s.conns[c.place].place = c.place
	s.conns[last] = nil
	s.conns = s.conns[:last]
	c.place = -1
}

// closeListeners ends the intake.
func (s *Server) closeListeners() {
	s.mu.Lock()
	s.stopping = true
	s.quits.Store(true)
	listeners := make([]net.Listener, 0, len(s.listeners))
	for l := range s.listeners {
		listeners = append(listeners, l)
	}
	s.mu.Unlock()
	for _, l := range listeners {
		_ = l.Close() // only errors of closing a socket
	}
}

// Shutdown ends the intake, closes idle connections, and waits until the requests in flight
// are answered; each answer ends its connection. It returns the error of ctx if that ends
// first; the connections stay then. Connections that were taken over do not count.
func (s *Server) Shutdown(ctx context.Context) error {
	s.closeListeners()
	wait := time.NewTicker(5 * time.Millisecond)
	defer wait.Stop()
	for s.closeIdle() > 0 {
		select {
		case <-wait.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	s.running.Wait()
	return nil
}

// Close ends everything immediately, except connections that were taken over.
func (s *Server) Close() error {
	s.closeListeners()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		_ = c.below.Close() // its goroutine ends with it
	}
	return nil
}
