package downstream

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
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
	// handler has returned. Default 0: no bound.
	SendTimeout time.Duration
	// MaxHead bounds a request's head in bytes. Default: http.DefaultMaxHeaderBytes.
	MaxHead int
	// HTTP2 has the limits of HTTP/2. Default: those of net/http.
	HTTP2 *http.HTTP2Config
	// ConnState is called when a connection changes its state, as by net/http. It must not
	// block. Default: not called.
	ConnState func(net.Conn, http.ConnState)
	// Malformed is called for each request that is refused because it is no valid HTTP.
	// Default: not called.
	Malformed func()
	// Incomplete is called for each connection that ends within the head of a request.
	// Default: not called.
	Incomplete func()
	// Logger gets the errors that clients can cause, at debug level, and panics. Required.
	Logger *slog.Logger
}

// Server serves the connections of clients. It is safe for concurrent use.
type Server struct {
	cfg   Config
	epoch time.Time
	http2 *http.Server
	clock atomic.Int64 // the time since epoch at the last check, which is exact enough for limits
	over  handoff      // connections for http2
	quits atomic.Bool  // answers end their connections

	mu        sync.Mutex // guards the fields below
	listeners map[net.Listener]struct{}
	conns     []*conn // each knows its place
	watching  bool    // the watch runs
	stopping  bool
	closed    bool
	forwards  bool           // http2 serves
	running   sync.WaitGroup // of http2 and of the watch
}

// New returns a server.
func New(cfg Config) *Server {
	if cfg.MaxHead == 0 {
		cfg.MaxHead = http.DefaultMaxHeaderBytes
	}
	for _, f := range []*func(){&cfg.Malformed, &cfg.Incomplete} {
		if *f == nil {
			*f = func() {}
		}
	}
	if cfg.ConnState == nil {
		cfg.ConnState = func(net.Conn, http.ConnState) {}
	}
	s := &Server{cfg: cfg, epoch: time.Now(), listeners: map[net.Listener]struct{}{}}
	s.over.init()
	var protocols http.Protocols
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	s.http2 = &http.Server{
		Handler: cfg.Handler, Protocols: &protocols, HTTP2: cfg.HTTP2,
		IdleTimeout: cfg.IdleTimeout, ReadHeaderTimeout: cfg.HeadTimeout, MaxHeaderBytes: cfg.MaxHead,
		ErrorLog: slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug),
		ConnState: func(c net.Conn, state http.ConnState) {
			if r, ok := c.(*replayed); ok {
				c = r.Conn
			}
			cfg.ConnState(c, state)
		},
	}
	return s
}

// Serve accepts connections until Shutdown or Close, and then returns http.ErrServerClosed.
// The connections of a TLS listener are of type *tls.Conn.
func (s *Server) Serve(l net.Listener) error {
	if !s.enter(l) {
		_ = l.Close()
		return http.ErrServerClosed
	}
	defer s.leave(l)
	var delay time.Duration // after an error that may pass, such as too many open files
	for {
		nc, err := l.Accept()
		if err != nil {
			if s.stops() {
				return http.ErrServerClosed
			}
			var temporary interface{ Temporary() bool }
			if !errors.As(err, &temporary) || !temporary.Temporary() {
				return err
			}
			delay = min(max(2*delay, 5*time.Millisecond), time.Second)
			s.cfg.Logger.Debug("cannot accept a connection", "err", err, "again_in", delay)
			time.Sleep(delay)
			continue
		}
		delay = 0
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
	over := make(chan error, 1)
	go func() { over <- s.http2.Shutdown(ctx) }()
	wait := time.NewTicker(5 * time.Millisecond)
	defer wait.Stop()
	for s.closeIdle() > 0 {
		select {
		case <-wait.C:
		case <-ctx.Done():
			return errors.Join(ctx.Err(), ignore(<-over, ctx.Err()))
		}
	}
	err := <-over
	if err == nil {
		s.running.Wait()
	}
	return err
}

// ignore returns err unless it is the other one.
func ignore(err, other error) error {
	if errors.Is(err, other) {
		return nil
	}
	return err
}

// Close ends everything immediately, except connections that were taken over.
func (s *Server) Close() error {
	s.closeListeners()
	err := s.http2.Close()
	s.mu.Lock()
	s.closed = true
	for _, c := range s.conns {
		_ = c.below.Close() // its goroutine ends with it
	}
	s.mu.Unlock()
	return err
}

// forward gives a connection to net/http. It returns false if the server stops.
func (s *Server) forward(c net.Conn) bool {
	s.mu.Lock()
	if s.stopping {
		s.mu.Unlock()
		return false
	}
	if !s.forwards {
		s.forwards = true
		s.running.Go(func() { _ = s.http2.Serve(&s.over) }) // ends with Shutdown or Close
	}
	s.mu.Unlock()
	return s.over.pass(c)
}

// handoff is the listener from which net/http takes the connections of HTTP/2.
type handoff struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (h *handoff) init() { h.conns, h.closed = make(chan net.Conn), make(chan struct{}) }

// pass gives a connection to net/http. It returns false if net/http takes no more.
func (h *handoff) pass(c net.Conn) bool {
	select {
	case h.conns <- c:
		return true
	case <-h.closed:
		return false
	}
}

func (h *handoff) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

func (h *handoff) Close() error {
	h.once.Do(func() { close(h.closed) })
	return nil
}

func (h *handoff) Addr() net.Addr { return &net.TCPAddr{} }

// replayed is a connection of which the first bytes were read.
type replayed struct {
	net.Conn
	read []byte
}

func (c *replayed) Read(p []byte) (int, error) {
	if len(c.read) > 0 {
		n := copy(p, c.read)
		if c.read = c.read[n:]; len(c.read) == 0 {
			c.read = nil
		}
		return n, nil
	}
	return c.Conn.Read(p)
}

// isHTTP2 reports whether a client has selected HTTP/2 in the handshake.
func isHTTP2(state *tls.ConnectionState) bool {
	return state != nil && state.NegotiatedProtocol == "h2"
}
