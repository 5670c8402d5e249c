package identity

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// reasonHandshake: no TLS, or not to its end.
	reasonHandshake = "handshake"
	// refusalQuiet is how long after a refusal others are only counted.
	refusalQuiet = 10 * time.Second
)

// ListenerReasons lists why a Listener refuses connections.
func ListenerReasons() []string {
	all := append(StrangerReasons(), reasonHandshake)
	for _, r := range reasons {
		all = append(all, string(r))
	}
	return all
}

// ListenerConfig describes a Listener. All fields but Strangers are required.
type ListenerConfig struct {
	// Socket is where connections come in. The listener closes it.
	Socket net.Listener
	// Source watches the connections; TLS is a server configuration of it.
	Source *Source
	TLS    *tls.Config
	// Strangers bounds those that have not proven yet who they are.
	Strangers StrangersConfig
	// Allowed says in the log who may connect.
	Allowed string
	// Refused counts those that may not, by reason; see ListenerReasons.
	Refused *prometheus.CounterVec
	// Logger gets at most one line in ten seconds.
	Logger *slog.Logger
}

// Listener hands out only connections whose other end has proven that it may
// connect. The handshake is not left to net/http because that reports its reason
// nowhere, and does not bound how many are under way.
type Listener struct {
	net.Listener
	cfg       ListenerConfig
	strangers *Strangers

	open    context.Context // ends with Close
	end     context.CancelFunc
	out     chan accepted
	running sync.WaitGroup

	mu         sync.Mutex // of the log of refusals
	quietUntil time.Time
	unlogged   int
}

type accepted struct {
	conn net.Conn
	err  error
}

// NewListener returns a listener that accepts nothing until Run.
func NewListener(cfg ListenerConfig) *Listener {
	l := &Listener{Listener: cfg.Socket, cfg: cfg, strangers: NewStrangers(cfg.Strangers), out: make(chan accepted)}
	l.open, l.end = context.WithCancel(context.Background())
	return l
}

// Accept returns the next connection, a *tls.Conn whose handshake is done.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case next := <-l.out:
		return next.conn, next.err
	case <-l.open.Done():
		return nil, net.ErrClosed
	}
}

// Close stops accepting and breaks off the handshakes under way.
func (l *Listener) Close() error {
	l.end()
	if err := l.Listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// Run accepts until Close, and returns when no handshake is under way any more.
// What the socket reports goes to the caller of Accept, which also waits where that
// is called for.
func (l *Listener) Run() {
	defer l.running.Wait()
	for l.open.Err() == nil {
		conn, err := l.Listener.Accept()
		if err != nil {
			l.hand(accepted{err: err})
			continue
		}
		stranger := l.strangers.Meet(conn)
		l.running.Go(func() { l.admit(stranger) })
	}
}

func (l *Listener) hand(next accepted) bool {
	select {
	case l.out <- next:
		return true
	case <-l.open.Done():
		return false
	}
}

func (l *Listener) admit(stranger *Stranger) {
	conn := l.cfg.Source.Watch(stranger)
	secured := tls.Server(conn, l.cfg.TLS)
	err := secured.HandshakeContext(l.open)
	ended := stranger.Leave()
	if err == nil && ended == "" && l.hand(accepted{conn: secured}) {
		return
	}
	_ = conn.Close()
	if l.open.Err() != nil {
		return // we are closing: this is no refusal
	}
	if reason, ok := ReasonOf(err); ok {
		l.cfg.Refused.WithLabelValues(string(reason)).Inc()
		l.warn(stranger, err)
		return
	}
	reason := ended
	if reason == "" {
		reason = reasonHandshake
	}
	l.cfg.Refused.WithLabelValues(reason).Inc()
	if clear, ok := errors.AsType[tls.RecordHeaderError](err); ok && clear.Conn != nil {
		l.warn(stranger, errors.New("it speaks clear text and shows no certificate: if it is a member, give it --tls-cert, --tls-key and --tls-ca"))
		return
	}
	l.cfg.Logger.Debug("no TLS connection was made", "reason", reason, "addr", stranger.RemoteAddr().String(), "err", err)
}

// warn logs one refusal in a while: one that keeps trying must not fill the log.
func (l *Listener) warn(conn net.Conn, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if now.Before(l.quietUntil) {
		l.unlogged++
		return
	}
	l.cfg.Logger.Warn("connection refused: only "+l.cfg.Allowed+" may connect here",
		"addr", conn.RemoteAddr().String(), "err", err, "refused_since_last_line", l.unlogged)
	l.quietUntil, l.unlogged = now.Add(refusalQuiet), 0
}
