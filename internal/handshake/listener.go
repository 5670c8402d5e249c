package handshake

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/membership/identity"
)

const (
	// reasonHandshake: not TLS, or an incomplete handshake.
	reasonHandshake = "handshake"
	// reasonNode: the node of the certificate has as many connections as it may have.
	reasonNode = "too_many_of_certificate"
	// refusalQuiet is how long after a logged refusal further ones are only counted.
	refusalQuiet = 10 * time.Second
)

// ListenerReasons lists the reasons for which a Listener refuses connections.
func ListenerReasons() []string {
	all := append(PendingReasons(), reasonHandshake, reasonNode)
	for _, r := range identity.Reasons() {
		all = append(all, string(r))
	}
	return all
}

// ListenerConfig describes a Listener. All fields but Pending, PerNode and Divert are required.
type ListenerConfig struct {
	// Socket accepts the connections. The listener closes it.
	Socket net.Listener
	// Source watches the connections; TLS is a server configuration of it.
	Source *identity.Source
	TLS    *tls.Config
	// Pending limits the connections of peers that have not proven their identity yet.
	Pending PendingConfig
	// PerNode is the most open connections of one node, by its certificate. Default: no bound, where
	// each request in flight may need a connection.
	PerNode int
	// Divert takes over a connection that Accept should not return, and reports whether it did.
	// It does not wait. Default: Accept returns all.
	Divert func(*tls.Conn) bool
	// Allowed is the text in log lines for the peers that may connect.
	Allowed string
	// Refused counts refused connections, by reason; see ListenerReasons.
	Refused *prometheus.CounterVec
	// Logger receives at most one line in ten seconds.
	Logger *slog.Logger
}

// Listener returns only connections whose peer has proven that it may connect. The
// handshake is not left to net/http, because net/http neither reports the reason of a
// failure nor limits the number of running handshakes.
type Listener struct {
	net.Listener
	cfg     ListenerConfig
	pending *Pending
	pace    *Pace // bounds the handshakes of each source that are refused

	open    context.Context // ends with Close
	end     context.CancelFunc
	out     chan accepted
	running sync.WaitGroup
	debts   debts

	mu         sync.Mutex // guards the log of refusals, and nodes
	nodes      map[string]int
	quietUntil time.Time
	unlogged   int
}

type accepted struct {
	conn net.Conn
	err  error
}

// NewListener returns a listener that accepts nothing until Run.
func NewListener(cfg ListenerConfig) *Listener {
	l := &Listener{Listener: cfg.Socket, cfg: cfg, pending: NewPending(cfg.Pending), pace: NewPace(), nodes: map[string]int{}, out: make(chan accepted), debts: debts{read: readDebt}}
	l.open, l.end = context.WithCancel(context.Background())
	return l
}

// Accept returns the next connection, a *tls.Conn with a completed handshake.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case next := <-l.out:
		return next.conn, next.err
	case <-l.open.Done():
		return nil, net.ErrClosed
	}
}

// Close stops accepting and ends running handshakes.
func (l *Listener) Close() error {
	l.end()
	if err := l.Listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// Run accepts until Close, and returns when no handshake is running any more. Errors of the
// socket are passed to the caller of Accept, which also decides how long to wait after
// them.
func (l *Listener) Run() {
	defer l.running.Wait()
	l.running.Go(l.endVanished)
	for l.open.Err() == nil {
		conn, err := l.Listener.Accept()
		if err != nil {
			l.hand(accepted{err: err})
			continue
		}
		opened := l.pending.Add(conn)
		l.running.Go(func() { l.admit(opened) })
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

func (l *Listener) admit(opened *PendingConn) {
	opened.Pace(l.open, l.pace)
	conn := l.cfg.Source.Watch(opened)
	secured := tls.Server(conn, l.cfg.TLS)
	err := secured.HandshakeContext(l.open)
	if err == nil { // relays open one for each request in flight at most, hundreds in a burst
		l.pace.Return(opened.RemoteAddr())
	}
	if err == nil && l.cfg.PerNode > 0 {
		err = l.claim(opened, secured)
	}
	ended := opened.Remove()
	if err == nil {
		l.debts.add(opened, conn)
	}
	if err == nil && ended == "" && (l.cfg.Divert != nil && l.cfg.Divert(secured) || l.hand(accepted{conn: secured})) {
		return
	}
	defer func() { _ = conn.Close() }() // counted before the peer sees it
	if l.open.Err() != nil {
		return // the listener is closing: not a refusal
	}
	var refusal *identity.RefusalError
	if errors.As(err, &refusal) {
		l.cfg.Refused.WithLabelValues(string(refusal.Field)).Inc()
		l.warn(opened, err)
		return
	}
	reason := ended
	switch {
	case errors.Is(err, ErrPace):
		reason = ReasonPace
	case errors.Is(err, errNode):
		reason = reasonNode
	case reason == "":
		reason = reasonHandshake
	}
	l.cfg.Refused.WithLabelValues(reason).Inc()
	if clear, ok := errors.AsType[tls.RecordHeaderError](err); ok && clear.Conn != nil {
		l.warn(opened, errors.New("it speaks clear text and shows no certificate: if it is a member, give it --tls-cert, --tls-key and --tls-ca"))
		return
	}
	l.cfg.Logger.Debug("no TLS connection was made", "reason", reason, "addr", opened.RemoteAddr().String(), "err", err)
}

var errNode = errors.New("the node of the certificate has as many connections as it may have")

// claim counts a connection for its node, until it is closed.
func (l *Listener) claim(opened *PendingConn, secured *tls.Conn) error {
	claims, err := l.cfg.Source.PeerClaims(secured.ConnectionState())
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.nodes[claims.Node] >= l.cfg.PerNode {
		return errNode
	}
	l.nodes[claims.Node]++
	opened.closed = sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.nodes[claims.Node]--; l.nodes[claims.Node] == 0 {
			delete(l.nodes, claims.Node)
		}
	})
	return nil
}

// warn logs at most one refusal per refusalQuiet: a peer that keeps trying must not fill the log.
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

// Reasons why a connection was closed before its peer had proven its identity.
const (
	// pendingTimeout: it took longer than the limit.
	pendingTimeout = "timeout"
	// pendingTooMany: a newer connection needed its place.
	pendingTooMany = "too_many"
	// pendingTooManyOfSource: a newer connection of the same source needed its place.
	pendingTooManyOfSource = "too_many_from_source"
)

// PendingReasons lists the reasons, that of a Pace included, for metrics.
func PendingReasons() []string {
	return []string{pendingTimeout, pendingTooMany, pendingTooManyOfSource, ReasonPace}
}

// PendingConfig holds the limits of a Pending. Zero values mean the defaults.
type PendingConfig struct {
	// Limit is how long a peer may take to prove its identity. Default 3 s: a handshake needs a
	// few round trips.
	Limit time.Duration
	// Total is the most connections. Default 1024, which use about 20 MB.
	Total int
	// PerSource is the most connections of one source: an IPv4 address, or a /64 network of IPv6,
	// because one host can choose any address in it. Default 256: a relay opens a few connections
	// at a time, and dozens of relays may share an address.
	PerSource int
}

// Pending are the connections of one listener whose peers have not proven their identity
// yet. There is always room for a new connection: at a limit an older one is closed for it,
// of the same source if that source is over its share. Usually that is the oldest
// connection that has sent nothing. If fewer than a quarter have sent nothing, it is the
// oldest of the others, so that connections that send a little and then stall cannot
// displace a new one, which has had no time to send.
//
// It is safe for concurrent use.
type Pending struct {
	cfg PendingConfig

	mu      sync.Mutex
	waiting []*PendingConn // oldest first
	sources map[netip.Prefix]int
}

// PendingConn is one of these connections. It can be used in place of the connection for as
// long as that is open.
type PendingConn struct {
	net.Conn
	all    *Pending
	source netip.Prefix
	limit  *time.Timer
	spoke  atomic.Bool
	reason string       // why it was closed; guarded by all.mu
	closed func()       // nil, or called by Close; set before the connection is passed on
	begin  func() error // nil, or called before the first bytes are passed on; see Pace
}

// Pace lets the connection take its turn in p when the peer sends its first bytes, or fails its Read
// with [ErrPace]. A silent connection costs no handshake, so it takes the turn of none. Call it before
// the first Read.
func (c *PendingConn) Pace(ctx context.Context, p *Pace) {
	c.begin = func() error { return p.Wait(ctx, c.RemoteAddr()) }
}

// Close implements net.Conn.
func (c *PendingConn) Close() error {
	if c.closed != nil {
		c.closed()
	}
	return c.Conn.Close()
}

// NetConn returns the connection.
func (s *PendingConn) NetConn() net.Conn { return s.Conn }

// NewPending returns an empty set.
func NewPending(cfg PendingConfig) *Pending {
	cfg.Limit = cmp.Or(cfg.Limit, 3*time.Second)
	cfg.Total = cmp.Or(cfg.Total, 1024)
	cfg.PerSource = cmp.Or(cfg.PerSource, 256)
	return &Pending{cfg: cfg, sources: map[netip.Prefix]int{}}
}

// Add adds a connection that was just accepted. The caller removes it with Remove.
func (s *Pending) Add(conn net.Conn) *PendingConn {
	one := &PendingConn{Conn: conn, all: s, source: originOf(conn.RemoteAddr())}
	s.mu.Lock()
	var gone *PendingConn
	switch {
	case s.sources[one.source] >= s.cfg.PerSource:
		gone = s.giveWay(pendingTooManyOfSource, func(w *PendingConn) bool { return w.source == one.source })
	case len(s.waiting) >= s.cfg.Total:
		gone = s.giveWay(pendingTooMany, func(*PendingConn) bool { return true })
	}
	s.waiting = append(s.waiting, one)
	s.sources[one.source]++
	one.limit = time.AfterFunc(s.cfg.Limit, one.expire)
	s.mu.Unlock()
	if gone != nil {
		_ = gone.Conn.Close()
	}
	return one
}

// giveWay selects the connection to close for a new one. The lock is held.
func (s *Pending) giveWay(reason string, among func(*PendingConn) bool) *PendingConn {
	var silent, talking *PendingConn // the oldest of each kind
	var silents, all int
	for _, w := range s.waiting {
		if !among(w) {
			continue
		}
		all++
		if w.spoke.Load() {
			talking = cmp.Or(talking, w)
		} else {
			silents++
			silent = cmp.Or(silent, w)
		}
	}
	gone := silent
	if silents < (all+3)/4 && talking != nil {
		gone = talking
	}
	s.remove(gone, reason)
	return gone
}

// remove removes a connection, unless it has been removed before. The lock is held.
func (s *Pending) remove(one *PendingConn, reason string) bool {
	at := slices.Index(s.waiting, one)
	if at < 0 {
		return false
	}
	s.waiting = slices.Delete(s.waiting, at, at+1)
	if s.sources[one.source]--; s.sources[one.source] == 0 {
		delete(s.sources, one.source)
	}
	one.reason = reason
	one.limit.Stop()
	return true
}

func (c *PendingConn) expire() {
	c.all.mu.Lock()
	late := c.all.remove(c, pendingTimeout)
	c.all.mu.Unlock()
	if late {
		_ = c.Conn.Close()
	}
}

// Remove removes the connection: the peer has proven its identity, or has failed to. It
// returns why the connection was closed in the meantime, empty if it was not.
func (c *PendingConn) Remove() (reason string) {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	c.all.remove(c, "")
	return c.reason
}

// Read records that the peer has sent data.
func (c *PendingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && !c.spoke.Load() {
		c.spoke.Store(true)
		if c.begin != nil {
			if err := c.begin(); err != nil {
				return 0, err
			}
		}
	}
	return n, err
}

// originOf returns the source of the other end of a connection.
func originOf(addr net.Addr) netip.Prefix {
	from, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return netip.Prefix{} // not an IP address: all of these count as one source
	}
	return SourceOf(from.Addr())
}

// SourceOf returns by what limits count a host or a client, because it has only a few of them: its IPv4
// address, or its /64 network of IPv6. The result is the zero value if the address is.
func SourceOf(ip netip.Addr) netip.Prefix {
	ip = ip.Unmap().WithZone("")
	bits := 32
	if ip.Is6() {
		bits = 64
	}
	prefix, _ := ip.Prefix(bits) // fails only for other lengths
	return prefix
}
