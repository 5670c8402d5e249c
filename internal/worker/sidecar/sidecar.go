package sidecar

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
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
	"github.com/ringway/ringway/internal/relay/upstream"
	"github.com/ringway/ringway/membership/identity"
)

// maxStreams bounds the requests on one HTTP/2 connection.
const maxStreams = 1000

// ErrClosed is what SetServices returns once the sidecar has stopped.
var ErrClosed = errors.New("sidecar: closed")

// Config describes a Sidecar.
type Config struct {
	// Addr is bound by New, host:port; port 0 takes a free one.
	Addr string
	// Identity is this worker's certificate. Required: without one there is no
	// sidecar, and relays connect to the services themselves.
	Identity *identity.Source
	// StopTimeout is how long a stop waits for requests in flight, tunnels too,
	// before it cuts them off. Default 30 s.
	StopTimeout time.Duration
	// HandshakeTimeout is how long a stranger may take to prove who it is.
	// Default 3 s.
	HandshakeTimeout time.Duration
	// ProgressTimeout is how long a request or a tunnel may go on without a byte; see
	// upstream.Exchange. It is a quarter longer in effect, so that the relay ends it,
	// which knows the client. Default 0: no limit.
	ProgressTimeout time.Duration

	// Logger gets refused members, at most one line in ten seconds, and at debug
	// the detail of failed requests and handshakes. Required.
	Logger *slog.Logger
	// Registerer takes the metrics. Required.
	Registerer prometheus.Registerer

	// bodyPatience is how long the rest of a small body is awaited before a
	// request is refused: what a relay has begun to send arrives in less than
	// 100 ms.
	bodyPatience time.Duration
}

// Sidecar fronts the services of one worker.
type Sidecar struct {
	cfg       Config
	admission *identity.Listener
	server    *http.Server
	metrics   *metrics

	// hard ends when nothing is to be waited for any more.
	hard context.Context
	cut  context.CancelFunc

	services atomic.Pointer[map[string]*service]
	mu       sync.Mutex // one writer of services; guards what follows
	retired  []*upstream.Pool
	closed   bool
}

// New binds the listener. It starts nothing: connections wait until Run.
func New(cfg Config) (*Sidecar, error) {
	cfg.StopTimeout = cmp.Or(cfg.StopTimeout, 30*time.Second)
	cfg.bodyPatience = cmp.Or(cfg.bodyPatience, 100*time.Millisecond)
	cfg.ProgressTimeout = upstream.BehindRelay(cfg.ProgressTimeout)
	socket, err := net.Listen("tcp", cfg.Addr)
	if err != nil {
		return nil, fmt.Errorf("listen for relays on %s: %w: is another process on this port?", cfg.Addr, err)
	}
	s := &Sidecar{cfg: cfg}
	s.hard, s.cut = context.WithCancel(context.Background())
	s.services.Store(&map[string]*service{})
	s.metrics = newMetrics(cfg.Registerer, func() map[string]*service { return *s.services.Load() })
	s.admission = identity.NewListener(identity.ListenerConfig{
		Socket:    socket,
		Source:    cfg.Identity,
		TLS:       cfg.Identity.ServerConfig(cfg.Identity.Policy(identity.DataPlane), "h2", "http/1.1"), // the matrix lets only relays connect to workers
		Strangers: identity.StrangersConfig{Limit: cfg.HandshakeTimeout},
		Allowed:   "relays of this cluster and environment",
		Refused:   s.metrics.refused, Logger: cfg.Logger,
	})
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	// No limit of net/http's is set: a relay has bounded the head of a request
	// and the time it took, in units that HTTP/2 counts differently.
	s.server = &http.Server{
		Handler: http.HandlerFunc(s.serve), Protocols: protocols,
		HTTP2:    &http.HTTP2Config{MaxConcurrentStreams: maxStreams, WriteByteTimeout: cfg.ProgressTimeout},
		ErrorLog: log.New(debugWriter{cfg.Logger}, "", 0),
	}
	return s, nil
}

// Addr is where relays connect.
func (s *Sidecar) Addr() net.Addr { return s.admission.Addr() }

// Carries reports whether a sidecar can front a service of this protocol: http1
// or h2c. Others are reached directly or not at all.
func Carries(p advertise.Protocol) bool {
	return p == "" || p == advertise.HTTP1 || p == advertise.H2C
}

// SetServices replaces the set of services: their names, local addresses,
// protocols and slots; nothing else of them matters here. A service whose address and
// protocol stay keeps its connections. Requests to one that is gone, or has moved,
// finish; its metrics go at once. Fewer slots than are taken end no request. With an
// error nothing has changed.
func (s *Sidecar) SetServices(services []advertise.Service) error {
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
		one, err := newService(offered, known)
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
	}
	s.services.Store(&next)
	s.retired = slices.DeleteFunc(s.retired, func(p *upstream.Pool) bool { return p.Stats().InFlight == 0 })
	for name, one := range before {
		if next[name] != one {
			one.close()
			s.retired = append(s.retired, one.pools()...)
		}
	}
	return nil
}

// Run serves until ctx ends, finishes what is in flight, and returns when nothing
// of the sidecar is left. The error is nil after an orderly stop and after Close.
func (s *Sidecar) Run(ctx context.Context) error {
	group, failed := errgroup.WithContext(ctx)
	group.Go(func() error {
		s.admission.Run()
		return nil
	})
	group.Go(func() error {
		if err := s.server.Serve(s.admission); !errors.Is(err, http.ErrServerClosed) && s.hard.Err() == nil {
			return fmt.Errorf("serve relays on %s: %w", s.Addr(), err)
		}
		return nil
	})
	group.Go(func() error {
		select {
		case <-failed.Done():
		case <-s.hard.Done():
		}
		s.stop()
		return nil
	})
	return group.Wait()
}

// stop lets requests finish within the bound and cuts off the rest.
func (s *Sidecar) stop() {
	ctx, cancel := context.WithTimeout(s.hard, s.cfg.StopTimeout)
	defer cancel()
	err := s.server.Shutdown(ctx)
	pools := s.closePools()
	for _, p := range pools { // tunnels, of which the server knows nothing any more
		err = errors.Join(err, p.Drain(ctx))
	}
	if err != nil && s.hard.Err() == nil {
		s.cfg.Logger.Warn("requests to services were still in flight at the end of the stop timeout: they are cut off", "timeout", s.cfg.StopTimeout)
	}
	_ = s.server.Close() // it reports only what closing a socket can report
	for _, p := range pools {
		_ = p.Drain(context.Background()) // what was cut off ends now
	}
}

// closePools refuses every new request and returns all pools that may have some
// in flight.
func (s *Sidecar) closePools() []*upstream.Pool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	pools := slices.Clone(s.retired)
	for _, one := range *s.services.Load() {
		one.close()
		pools = append(pools, one.pools()...)
	}
	return pools
}

// Close cuts off everything at once: for a sidecar that is not run, or whose
// process is to end as if it had died. Run returns soon after.
func (s *Sidecar) Close() error {
	_ = s.server.Close() // first, or its handlers would answer that the services failed
	s.cut()
	s.closePools()
	return s.admission.Close()
}

// debugWriter keeps what relays can provoke out of the log of normal days.
type debugWriter struct{ logger *slog.Logger }

func (w debugWriter) Write(line []byte) (int, error) {
	w.logger.Debug("sidecar: " + string(bytes.TrimSpace(line)))
	return len(line), nil
}
