package sidecar

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/handshake"
	"github.com/ringway/ringway/internal/loglimit"
	"github.com/ringway/ringway/internal/proxy/downstream"
	"github.com/ringway/ringway/internal/proxy/socket"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/membership/identity"
)

// ErrClosed is the error of SetServices after the sidecar has stopped.
var ErrClosed = errors.New("sidecar: closed")

// Config describes a Sidecar.
type Config struct {
	// Addr is bound by New, host:port; port 0 takes a free one.
	Addr string
	// Identity is the certificate of this worker. Required: without a certificate there is
	// no sidecar, and relays connect to the services directly.
	Identity *identity.Source
	// DrainTimeout is how long a stop waits for requests in flight. Default 0: the stop
	// cuts them off immediately.
	DrainTimeout time.Duration
	// SessionDrainTimeout is the same limit, from the same moment on, for tunnels and for
	// answers that have begun; see upstream.Drain. Default 0, which like any value below
	// DrainTimeout means that they end with the requests.
	SessionDrainTimeout time.Duration
	// HandshakeTimeout is how long a client may take for the handshake. Default 3 s.
	HandshakeTimeout time.Duration
	// ProgressTimeout is how long a request or a tunnel may go on without a byte; see
	// upstream.Options. The effective limit is a quarter longer, so that the relay ends
	// the request, because only the relay can answer the client. Default 0: no limit.
	ProgressTimeout time.Duration

	// MaxAnswerHead bounds the head of a service's answer; see upstream.Config. Default 64 KiB.
	MaxAnswerHead int
	// ServiceRoots are the authorities of the certificates of services with h2. Default: those
	// of this host.
	ServiceRoots *x509.CertPool

	// ReadyRelays is the number up to which Relays counts. Default 0: it counts nothing.
	ReadyRelays int

	// Logger logs refused members, at most one line in ten seconds, services whose TLS fails,
	// at most loglimit.Lines a second, and at debug the details of failed requests and
	// handshakes. Required.
	Logger *slog.Logger
	// Registerer registers the metrics. Required.
	Registerer prometheus.Registerer

	// bodyPatience is how long refuse waits for the rest of a small body: a body that a
	// relay has begun to send arrives in less than 100 ms.
	bodyPatience time.Duration
}

// Sidecar accepts requests for the services of one worker.
type Sidecar struct {
	cfg       Config
	admission *handshake.Listener
	connected *connected // accepts from admission
	server    *downstream.Server
	metrics   *metrics
	lines     *loglimit.Limiter

	// hard ends when the sidecar must stop waiting for requests in flight.
	hard context.Context
	cut  context.CancelFunc

	sessions upstream.Sessions // of all connections to services
	activity upstream.Activity // likewise
	services atomic.Pointer[map[string]*service]
	mu       sync.Mutex // one writer of services; guards the fields below
	retired  []*upstream.Pool
	left     map[string]*service // services that are gone and have requests in flight
	closed   bool
}

// New binds the listener. It starts nothing: connections wait until Run.
func New(cfg Config) (*Sidecar, error) {
	cfg.bodyPatience = cmp.Or(cfg.bodyPatience, 100*time.Millisecond)
	cfg.ProgressTimeout = upstream.BehindRelay(cfg.ProgressTimeout)
	listener, err := net.Listen("tcp", cfg.Addr)
	if err != nil {
		return nil, fmt.Errorf("listen for relays on %s (--sidecar-addr): %w: is another process on this port?", cfg.Addr, err)
	}
	s := &Sidecar{cfg: cfg, lines: loglimit.New(cfg.Logger)}
	s.hard, s.cut = context.WithCancel(context.Background())
	s.services.Store(&map[string]*service{})
	s.metrics = newMetrics(cfg.Registerer, &s.activity, func() map[string]*service { return *s.services.Load() })
	s.admission = handshake.NewListener(handshake.ListenerConfig{
		Socket:  socket.Listen(listener),
		Source:  cfg.Identity,
		TLS:     cfg.Identity.ServerConfig(cfg.Identity.Policy(identity.DataPlane), "h2", "http/1.1"), // the matrix allows only relays and observers to connect to workers
		Pending: handshake.PendingConfig{Limit: cfg.HandshakeTimeout},
		Allowed: "relays and observers of this cluster and environment",
		Refused: s.metrics.refused, Logger: cfg.Logger,
	})
	s.connected = &connected{Listener: s.admission, source: cfg.Identity, enough: cfg.ReadyRelays, relays: map[string]bool{}}
	// No time limits here: the relay has already limited the time of the head.
	s.server = downstream.New(downstream.Config{
		Handler: http.HandlerFunc(s.serve), SendTimeout: cfg.ProgressTimeout,
		Until: handshake.UntilRenewal(cfg.Identity), Shared: downstream.OfRelays, Logger: cfg.Logger,
	})
	return s, nil
}

// Addr returns the address for relays.
func (s *Sidecar) Addr() net.Addr { return s.admission.Addr() }

// Relays returns how many relays have connected since the start, up to Config.ReadyRelays.
func (s *Sidecar) Relays() int { return s.connected.count() }

// SetServices replaces the set of services: their names, local addresses, protocols, slots,
// policies and server names; other fields are ignored. A service whose address and protocol stay keeps its
// connections. Requests to a service that was removed, or has moved, finish; the metrics of
// a removed service end immediately. A reduced number of slots ends no request. After an
// error nothing has changed.
func (s *Sidecar) SetServices(services []Service) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	before := *s.services.Load()
	next := make(map[string]*service, len(services))
	var fresh []*service
	for _, offered := range services {
		known := before[offered.Name]
		if known != nil && known.fronts(offered) {
			next[offered.Name] = known
			continue
		}
		one, err := s.newService(offered, cmp.Or(known, s.left[offered.Name]))
		if err != nil {
			for _, one := range fresh {
				one.close()
			}
			return err
		}
		fresh = append(fresh, one)
		next[offered.Name] = one
	}
	for _, offered := range services {
		next[offered.Name].slots.Store(int64(offered.Slots))
		policy, _ := advertise.ParsePolicy(offered.Policy) // the agent has checked it
		progress := s.cfg.ProgressTimeout
		if policy.ProgressTimeout > 0 {
			progress = upstream.BehindRelay(policy.ProgressTimeout)
		}
		next[offered.Name].progress.Store(int64(progress))
		next[offered.Name].never.Store(policy.Retry == advertise.RetryNever)
		next[offered.Name].once.Store(policy.Retry == advertise.RetryNever || policy.Retry == advertise.RetryConnect)
	}
	s.services.Store(&next)
	s.retired = slices.DeleteFunc(s.retired, func(p *upstream.Pool) bool { return p.Stats().InFlight == 0 })
	left := map[string]*service{} // they hold slots, also of a service that comes back
	for name, one := range s.left {
		if next[name] == nil && one.inFlight.Load() > 0 {
			left[name] = one
		}
	}
	for name, one := range before {
		if next[name] != one {
			one.close()
			s.retired = append(s.retired, one.pools()...)
		}
		if next[name] == nil && one.inFlight.Load() > 0 {
			left[name] = one
		}
	}
	s.left = left
	return nil
}

// Run serves until ctx ends, finishes the requests in flight, and returns when nothing of
// the sidecar is left. The error is nil after an orderly stop and after Close.
func (s *Sidecar) Run(ctx context.Context) error {
	group, failed := errgroup.WithContext(ctx)
	group.Go(func() error {
		s.admission.Run()
		return nil
	})
	group.Go(func() error {
		if err := s.server.Serve(s.connected); !errors.Is(err, http.ErrServerClosed) && s.hard.Err() == nil {
			return fmt.Errorf("serve relays on %s: %w", s.Addr(), err)
		}
		return nil
	})
	group.Go(func() error {
		select {
		case <-failed.Done():
		case <-s.hard.Done():
		}
		if s.hard.Err() == nil {
			s.drain()
		}
		s.end()
		return nil
	})
	return group.Wait()
}

// drain waits for requests and sessions within their time limits, and cuts off the rest.
func (s *Sidecar) drain() {
	left, err := s.sessions.Drain(s.hard, upstream.Drain{
		Requests: s.cfg.DrainTimeout, Sessions: s.cfg.SessionDrainTimeout,
		Shutdown: func(ctx context.Context) error {
			err := s.server.Shutdown(ctx)
			s.closePools()
			return err
		},
		InFlight: s.inFlight, Ended: func(n int) { s.metrics.sessionsEnded.Add(float64(n)) }, Logger: s.cfg.Logger,
	})
	if (err != nil || left > 0) && s.hard.Err() == nil {
		s.cfg.Logger.Warn("requests to services were still in flight at the end of the drain: they are cut off", "in_flight", left, "err", err)
	}
}

// end cuts off the remaining requests and waits for their end.
func (s *Sidecar) end() {
	_ = s.server.Close() // only errors of closing a socket
	s.lines.Stop()
	over, cancel := context.WithCancel(context.Background())
	cancel()
	pools := s.closePools()
	for _, p := range pools {
		_ = p.Drain(over) // tunnels, which the server does not track
	}
	for _, p := range pools {
		_ = p.Drain(context.Background()) // returns soon, because everything is cut off
	}
}

// inFlight counts the requests and tunnels of all services, including removed and moved
// ones.
func (s *Sidecar) inFlight() (n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.pools() {
		n += int64(p.Stats().InFlight)
	}
	return n
}

// closePools refuses every new request and returns all pools that may have requests in
// flight.
func (s *Sidecar) closePools() []*upstream.Pool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, one := range *s.services.Load() {
		one.close()
	}
	return s.pools()
}

// pools returns all pools that may have requests in flight. s.mu is held.
func (s *Sidecar) pools() []*upstream.Pool {
	pools := slices.Clone(s.retired)
	for _, one := range *s.services.Load() {
		pools = append(pools, one.pools()...)
	}
	return pools
}

// Close cuts off everything immediately: for a sidecar that is not run, or to simulate the
// death of the process. Run returns soon after.
func (s *Sidecar) Close() error {
	_ = s.server.Close() // first, because otherwise its handlers would answer that the services failed
	s.cut()
	s.closePools()
	return s.admission.Close()
}
