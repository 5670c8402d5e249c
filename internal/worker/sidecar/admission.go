package sidecar

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/membership/identity"
)

const (
	// maxHandshakes bounds what strangers can make us hold at one time.
	maxHandshakes = 256
	// refusalQuiet is how long after a refusal others are only counted.
	refusalQuiet = 10 * time.Second
)

// Reasons of refusals besides those of package identity.
const (
	reasonHandshake      = "handshake" // no TLS, or not to its end
	reasonTimeout        = "timeout"
	reasonTooMany        = "too_many"
	reasonUnknownService = "unknown_service"
)

// admission is a listener that hands out only connections whose other end has
// proved to be a relay of ours. The handshake is not left to net/http because
// that tells its reason to nobody.
type admission struct {
	net.Listener
	config  *tls.Config
	timeout time.Duration
	logger  *slog.Logger
	refused *prometheus.CounterVec

	open    context.Context // ends with Close
	end     context.CancelFunc
	out     chan accepted
	places  chan struct{}
	running sync.WaitGroup

	mu         sync.Mutex // of the log of refusals
	quietUntil time.Time
	unlogged   int
}

type accepted struct {
	conn net.Conn
	err  error
}

func newAdmission(socket net.Listener, cfg Config, refused *prometheus.CounterVec) *admission {
	policy := cfg.Identity.Policy(identity.DataPlane) // the matrix lets only relays connect to workers
	a := &admission{
		Listener: socket, config: cfg.Identity.ServerConfig(policy, "h2", "http/1.1"), timeout: cfg.HandshakeTimeout,
		logger: cfg.Logger, refused: refused, out: make(chan accepted), places: make(chan struct{}, maxHandshakes),
	}
	a.open, a.end = context.WithCancel(context.Background())
	return a
}

// Accept returns the next admitted connection, a *tls.Conn.
func (a *admission) Accept() (net.Conn, error) {
	select {
	case next := <-a.out:
		return next.conn, next.err
	case <-a.open.Done():
		return nil, net.ErrClosed
	}
}

// Close stops accepting and breaks off the handshakes under way.
func (a *admission) Close() error {
	a.end()
	if err := a.Listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// run accepts until Close, and returns when no handshake is under way any more.
// What the socket reports goes to whoever accepts, which also waits where that
// is called for.
func (a *admission) run() {
	defer a.running.Wait()
	for a.open.Err() == nil {
		conn, err := a.Listener.Accept()
		if err != nil {
			a.hand(accepted{err: err})
			continue
		}
		select {
		case a.places <- struct{}{}:
			a.running.Go(func() {
				defer func() { <-a.places }()
				a.admit(conn)
			})
		default:
			_ = conn.Close()
			a.refused.WithLabelValues(reasonTooMany).Inc()
		}
	}
}

func (a *admission) hand(next accepted) bool {
	select {
	case a.out <- next:
		return true
	case <-a.open.Done():
		return false
	}
}

func (a *admission) admit(conn net.Conn) {
	ctx, cancel := context.WithTimeout(a.open, a.timeout)
	defer cancel()
	secured := tls.Server(conn, a.config)
	err := secured.HandshakeContext(ctx)
	if err == nil && a.hand(accepted{conn: secured}) {
		return
	}
	_ = conn.Close()
	if err == nil || a.open.Err() != nil {
		return // we are closing: nobody was refused
	}
	if reason, ok := identity.ReasonOf(err); ok {
		a.refused.WithLabelValues(string(reason)).Inc()
		a.warn(conn, err)
		return
	}
	reason := reasonHandshake
	if ctx.Err() != nil {
		reason = reasonTimeout
	}
	a.refused.WithLabelValues(reason).Inc()
	a.logger.Debug("no TLS connection was made", "reason", reason, "addr", conn.RemoteAddr().String(), "err", err)
}

// warn logs one refusal in a while: who keeps knocking must not fill the log.
func (a *admission) warn(conn net.Conn, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if now.Before(a.quietUntil) {
		a.unlogged++
		return
	}
	a.logger.Warn("connection refused: only relays of this cluster and environment may connect here",
		"addr", conn.RemoteAddr().String(), "err", err, "refused_since_last_line", a.unlogged)
	a.quietUntil, a.unlogged = now.Add(refusalQuiet), 0
}
