package relay

import (
	"cmp"
	"errors"
	"math"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/metric"
	"github.com/ringway/ringway/internal/publish"
)

const (
	// reservedFiles is the minimum of descriptors that clients leave free: for gossip, the
	// admin API, other relays, certificates and the files of a reload.
	reservedFiles = 128
	// requestTime is how long a kept connection may wait for its next request before a newer
	// connection may replace it.
	requestTime = time.Second
	// firstRequestTime is the same for a new connection. In a burst the clients and this
	// relay are slow: with less time its connections would replace each other before their
	// requests are read.
	firstRequestTime = 5 * time.Second
	// longestAtOnce is how many connections one scan of all connections selects.
	longestAtOnce = 256
)

// clientConnections returns how many connections of clients a process may have that may
// open this number of files: half of the rest after the reserve, because each of them may
// need one to a worker. For a small limit it is a quarter of the limit.
func clientConnections(files int) int {
	if files <= 0 { // this system does not report a limit
		return math.MaxInt32
	}
	return max((files-reservedFiles)/2, files/4, 1)
}

// boundClients sets the maximum number of connections of clients; 0 means the default.
func (r *Relay) boundClients(limit int) {
	files := fileLimit()
	if limit == 0 {
		limit = clientConnections(files)
	} else if files > 0 && limit > files-reservedFiles {
		r.cfg.Logger.Warn("--max-client-connections leaves too few descriptors for all else: lower it, or raise the limit of open files",
			"max_client_connections", limit, "open_files_limit", files, "reserve", reservedFiles)
	}
	r.clients.bound(limit)
}

// clients bounds the connections of clients at all addresses of the ingress together, so that
// they do not use up the descriptors that all other parts need. At the bound a new connection
// replaces the one that waits longest for a request. If none waits, the new connection waits;
// no other is accepted at its address meanwhile, so the following ones wait in the kernel.
type clients struct {
	epoch time.Time
	// fronts reports whether many clients may be behind an address.
	fronts func(netip.Addr) bool
	limit  atomic.Int64
	freed  chan struct{} // holds one value if a place may be free

	mu      sync.Mutex // guards the fields below
	open    map[*clientConn]struct{}
	longest []waiting // those that waited longest at the last scan, in order
	of      map[netip.Addr]*connsOf

	evicted, overShare prometheus.Counter
	full, files, other prometheus.Counter
}

// clientListener accepts the connections of clients at one address.
type clientListener struct {
	net.Listener
	all     *clients
	secured bool // clients begin with TLS
	site    int  // how TLS ends then: the index of a clienttls.Site
	closed  chan struct{}
	closes  sync.Once
}

// waiting is a connection and the time since when it waits for a request.
type waiting struct {
	conn  *clientConn
	since int64
}

// clientConn is a connection of a client.
type clientConn struct {
	net.Conn
	of *clientListener
	// since is when the connection began to wait for a request, after of.all.epoch. For a new
	// connection it is later by its additional time. It is busy while a request is in
	// flight.
	since atomic.Int64
	gone  atomic.Bool // its place was released
	// remote is the address that a load balancer reported, nil without. It is set before the
	// first request.
	remote net.Addr

	// Guarded by of.all.mu: its client, nil if it is not counted, and the neighbours there.
	client     *connsOf
	prev, next *clientConn
}

// busy is the value of clientConn.since for a connection that does not wait.
const busy = 0

func newClients(conns *connMetrics, reg prometheus.Registerer, fronts func(netip.Addr) bool) *clients {
	pauses := metric.With(reg).CounterVec("ringway_relay_accept_pauses_total", "Times that the ingress paused accepting, by reason: connections (--max-client-connections, and none of them idle), files (out of descriptors), other.", "reason")
	l := &clients{
		epoch: time.Now(), fronts: fronts, freed: make(chan struct{}, 1), open: map[*clientConn]struct{}{}, of: map[netip.Addr]*connsOf{},
		evicted: conns.dropped.WithLabelValues("ingress", "replaced"), overShare: conns.dropped.WithLabelValues("ingress", "client_share"),
		full: pauses.WithLabelValues("connections"), files: pauses.WithLabelValues("files"), other: pauses.WithLabelValues("other"),
	}
	metric.With(reg).GaugeFunc("ringway_relay_client_connections", "Connections of clients that are open, those of TCP sessions included.",
		func() float64 { return float64(l.count()) })
	metric.With(reg).GaugeFunc("ringway_relay_client_connections_limit", "Connections of clients that may be open, those of TCP sessions included (--max-client-connections).",
		func() float64 { return float64(l.limit.Load()) })
	return l
}

// listener returns the listener of one address.
func (l *clients) listener(socket net.Listener, secured bool) *clientListener {
	return &clientListener{Listener: socket, all: l, secured: secured, closed: make(chan struct{})}
}

// count returns how many connections are open.
func (l *clients) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.open)
}

// bound sets the maximum number of connections; open connections stay.
func (l *clients) bound(limit int) {
	l.limit.Store(int64(limit))
	l.placeFreed()
}

// Accept returns the next connection as soon as there is a place for it.
func (l *clientListener) Accept() (net.Conn, error) {
	for {
		c, err := l.accept()
		if err != nil {
			return nil, err
		}
		addr := addrOf(c.Conn.RemoteAddr())
		if !addr.IsValid() || l.all.fronts(addr) || l.all.claim(c, addr) {
			return c, nil
		}
		_ = c.Close()
	}
}

func (l *clientListener) accept() (*clientConn, error) {
	conn, err := l.Listener.Accept()
	switch {
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		l.all.files.Inc() // the server waits before it tries again: see handshake.Lasting
		return nil, err
	case err != nil:
		if !errors.Is(err, net.ErrClosed) {
			l.all.other.Inc()
		}
		return nil, err
	}
	c := &clientConn{Conn: conn, of: l}
	if !l.all.admit(c) {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	return c, nil
}

// admit waits for a place for the connection. It returns false if the listener was closed.
func (l *clients) admit(c *clientConn) bool {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	paused := false
	for {
		l.mu.Lock()
		if int64(len(l.open)) < l.limit.Load() {
			c.since.Store(l.now() + int64(firstRequestTime-requestTime))
			l.open[c] = struct{}{}
			more := int64(len(l.open)) < l.limit.Load()
			l.mu.Unlock()
			if more && paused {
				l.placeFreed() // a connection at another address may wait as well
			}
			return true
		}
		victim, again := l.longestWaiting()
		l.mu.Unlock()
		if victim != nil {
			l.evicted.Inc()
			_ = victim.Close()
			continue
		}
		if !paused {
			paused = true
			l.full.Inc()
		}
		timer.Reset(again)
		select {
		case <-l.freed:
		case <-timer.C:
		case <-c.of.closed:
			return false
		}
	}
}

// now never returns busy.
func (l *clients) now() int64 { return int64(time.Since(l.epoch)) + 1 }

// longestWaiting takes the connection that waits longest for a request, if that is long
// enough, or returns when to ask again. The lock is held.
func (l *clients) longestWaiting() (victim *clientConn, again time.Duration) {
	now := l.now()
	for scanned := false; ; scanned = true {
		for len(l.longest) > 0 {
			w := l.longest[0]
			if l.longest = l.longest[1:]; w.conn.since.CompareAndSwap(w.since, busy) { // it still waits, and no other scan has taken it
				return w.conn, 0
			}
		}
		if scanned {
			return nil, again
		}
		again = requestTime
		for c := range l.open {
			since := c.since.Load()
			switch left := requestTime - time.Duration(now-since); {
			case since == busy:
			case left > 0:
				again = min(again, left)
			default:
				l.longest = append(l.longest, waiting{c, since})
			}
		}
		slices.SortFunc(l.longest, func(a, b waiting) int { return cmp.Compare(a.since, b.since) })
		l.longest = slices.Clone(l.longest[:min(len(l.longest), longestAtOnce)])
	}
}

// record keeps the state of a connection; see http.Server.ConnState.
func (l *clients) record(conn net.Conn, state http.ConnState) {
	c := clientOf(conn)
	if c == nil {
		return
	}
	switch state {
	case http.StateActive, http.StateHijacked:
		c.since.Store(busy)
	case http.StateIdle:
		c.since.Store(l.now())
	}
}

// Close also ends the wait for a place.
func (l *clientListener) Close() error {
	l.closes.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// placeFreed makes the connection that waits for a place check again.
func (l *clients) placeFreed() {
	publish.Notify(l.freed)
}

// clientOf returns the connection of a client below TLS, nil if there is none.
func clientOf(conn net.Conn) *clientConn {
	for {
		if c, ok := conn.(*clientConn); ok {
			return c
		}
		around, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			return nil
		}
		conn = around.NetConn()
	}
}

// RemoteAddr returns the address of the client, also behind a load balancer that reports it.
func (c *clientConn) RemoteAddr() net.Addr {
	if c.remote != nil {
		return c.remote
	}
	return c.Conn.RemoteAddr()
}

// NetConn returns the connection below.
func (c *clientConn) NetConn() net.Conn { return c.Conn }

// CloseWrite is needed by tunnels, which end one direction at a time.
func (c *clientConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

// Close also releases the place.
func (c *clientConn) Close() error {
	err := c.Conn.Close()
	if c.gone.CompareAndSwap(false, true) {
		all := c.of.all
		all.mu.Lock()
		delete(all.open, c)
		all.leave(c)
		all.mu.Unlock()
		all.placeFreed()
	}
	return err
}
