package memnet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Config describes a network without faults. The zero value has no latency and no loss.
type Config struct {
	// Seed is the seed for the random draws of loss and jitter.
	Seed uint64
	// Latency is the time that a packet or a piece of a stream takes one way; a uniform share of
	// Jitter is added. Default 0.
	Latency, Jitter time.Duration
	// Loss is the share of packets that vanish, 0 to 1. Streams are not affected.
	Loss float64
}

// Network connects hosts. All methods may be called from any goroutine.
type Network struct {
	counters counters
	faulty   atomic.Bool // whether any path may be cut; avoids the lock if none is

	random struct {
		sync.Mutex
		*rand.Rand
		latency, jitter time.Duration
		loss            float64
	}

	mu      sync.RWMutex // guards the fields below
	faults  faults
	changed chan struct{} // closed and replaced when a fault begins or ends
	done    chan struct{} // closed by Close
	closed  bool
	sockets map[netip.AddrPort]*packetConn
	streams map[netip.AddrPort]*listener
	conns   map[*conn]struct{}
}

// New creates a network. It starts no goroutine. For a synctest bubble it must be called
// inside the bubble, because it creates channels. Under the race detector the program then runs on
// one processor: see oneProcessor.
func New(cfg Config) *Network {
	oneProcessor()
	n := &Network{
		changed: make(chan struct{}), done: make(chan struct{}),
		sockets: make(map[netip.AddrPort]*packetConn),
		streams: make(map[netip.AddrPort]*listener),
		conns:   make(map[*conn]struct{}),
	}
	n.random.Rand = rand.New(rand.NewPCG(cfg.Seed, 0x6d656d6e6574))
	n.random.latency, n.random.jitter, n.random.loss = cfg.Latency, cfg.Jitter, cfg.Loss
	return n
}

// SetLatency changes the one-way latency of data sent from now on.
func (n *Network) SetLatency(latency, jitter time.Duration) {
	n.random.Lock()
	defer n.random.Unlock()
	n.random.latency, n.random.jitter = latency, jitter
}

// SetLoss changes the share of packets that vanish, 0 to 1.
func (n *Network) SetLoss(share float64) {
	n.random.Lock()
	defer n.random.Unlock()
	n.random.loss = share
}

// travel draws the latency of one packet or piece of a stream.
func (n *Network) travel() time.Duration {
	n.random.Lock()
	defer n.random.Unlock()
	d := n.random.latency
	if n.random.jitter > 0 {
		d += time.Duration(n.random.Int64N(int64(n.random.jitter)))
	}
	return d
}

func (n *Network) lost() bool {
	n.random.Lock()
	defer n.random.Unlock()
	return n.random.loss > 0 && n.random.Float64() < n.random.loss
}

// Counters returns the totals so far.
func (n *Network) Counters() Counters { return n.counters.read() }

// Close closes every socket and connection and makes every blocked call return.
func (n *Network) Close() error {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return nil
	}
	n.closed = true
	close(n.done)
	open := n.everything(func(netip.Addr) bool { return true })
	n.mu.Unlock()
	for _, c := range open {
		_ = c.Close()
	}
	return nil
}

// everything returns all open sockets and connections of some hosts. The caller holds mu.
func (n *Network) everything(on func(netip.Addr) bool) []interface{ Close() error } {
	var out []interface{ Close() error }
	for at, s := range n.sockets {
		if on(at.Addr()) {
			out = append(out, s)
		}
	}
	for at, l := range n.streams {
		if on(at.Addr()) {
			out = append(out, l)
		}
	}
	for c := range n.conns {
		if on(c.local.Addr()) {
			out = append(out, c)
		}
	}
	return out
}

// Host returns the host that owns an IP address. It panics if ip is not an address, because
// that is an error in the test itself.
func (n *Network) Host(ip string) *Host {
	return &Host{network: n, ip: netip.MustParseAddr(ip).Unmap(), nextPort: firstEphemeral}
}

// firstEphemeral is the first port used for port 0 and for dialling.
const firstEphemeral = 32768

// Host is one machine. It is a membership.Network.
type Host struct {
	network *Network

	mu       sync.Mutex // guards the fields below
	ip       netip.Addr
	nextPort uint16
}

// IP returns the host's address.
func (h *Host) IP() netip.Addr {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ip
}

// Crash closes everything that is open on the host, like the end of its process: peers of
// its streams read an end, dials to it are refused, packets to it vanish. The host can be
// used again.
func (h *Host) Crash() {
	ip := h.IP()
	h.network.mu.RLock()
	open := h.network.everything(func(a netip.Addr) bool { return a == ip })
	h.network.mu.RUnlock()
	for _, c := range open {
		_ = c.Close()
	}
}

// Move crashes the host and gives it another address.
func (h *Host) Move(ip string) {
	h.Crash()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ip = netip.MustParseAddr(ip).Unmap()
}

// resolve converts an address to bind to one of this host. The unspecified address means
// the host's own.
func (h *Host) resolve(addr string) (netip.AddrPort, error) {
	at, err := netip.ParseAddrPort(addr)
	if err != nil {
		return at, err
	}
	ip := h.IP()
	if at.Addr().IsUnspecified() {
		at = netip.AddrPortFrom(ip, at.Port())
	}
	if at.Addr().Unmap() != ip {
		return at, os.NewSyscallError("bind", syscall.EADDRNOTAVAIL)
	}
	return netip.AddrPortFrom(ip, at.Port()), nil
}

// ephemeral returns the next port for which taken is false.
func (h *Host) ephemeral(taken func(netip.AddrPort) bool) netip.AddrPort {
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		at := netip.AddrPortFrom(h.ip, h.nextPort)
		if h.nextPort++; h.nextPort == 0 {
			h.nextPort = firstEphemeral
		}
		if !taken(at) {
			return at
		}
	}
}

// ListenPacket binds a packet socket. Port 0 selects a free port.
func (h *Host) ListenPacket(addr string) (net.PacketConn, error) {
	fail := func(err error) (net.PacketConn, error) {
		return nil, &net.OpError{Op: "listen", Net: "udp", Err: err}
	}
	at, err := h.resolve(addr)
	if err != nil {
		return fail(err)
	}
	n := h.network
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return fail(net.ErrClosed)
	}
	if at.Port() == 0 {
		at = h.ephemeral(func(a netip.AddrPort) bool { return n.sockets[a] != nil })
	}
	if n.sockets[at] != nil {
		return fail(os.NewSyscallError("bind", syscall.EADDRINUSE))
	}
	s := newPacketConn(n, at)
	n.sockets[at] = s
	return s, nil
}

// Listen binds a stream socket. Port 0 selects a free port.
func (h *Host) Listen(addr string) (net.Listener, error) {
	fail := func(err error) (net.Listener, error) {
		return nil, &net.OpError{Op: "listen", Net: "tcp", Err: err}
	}
	at, err := h.resolve(addr)
	if err != nil {
		return fail(err)
	}
	n := h.network
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return fail(net.ErrClosed)
	}
	if at.Port() == 0 {
		// Select a port that is also free for packets, because one port usually carries both.
		at = h.ephemeral(func(a netip.AddrPort) bool { return n.streams[a] != nil || n.sockets[a] != nil })
	}
	if n.streams[at] != nil {
		return fail(os.NewSyscallError("bind", syscall.EADDRINUSE))
	}
	l := &listener{network: n, at: at, incoming: make(chan *conn, backlog), done: make(chan struct{})}
	n.streams[at] = l
	return l, nil
}

// Dial opens a stream. A dial over a cut path hangs until ctx ends or the path heals; one
// to an address without a listener is refused. Both errors are *net.OpError.
func (h *Host) Dial(ctx context.Context, addr string) (net.Conn, error) {
	n := h.network
	from := h.ephemeral(func(netip.AddrPort) bool { return false })
	to, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: err}
	}
	to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
	fail := func(err error) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Source: net.TCPAddrFromAddrPort(from), Addr: net.TCPAddrFromAddrPort(to), Err: err}
	}
	gaveUp := func() (net.Conn, error) {
		n.counters.dialsTimedOut.Add(1)
		if ctx.Err() == context.DeadlineExceeded {
			return fail(os.ErrDeadlineExceeded)
		}
		return fail(ctx.Err())
	}

	n.counters.dials.Add(1)
	for {
		n.mu.RLock()
		changed := n.changed
		n.mu.RUnlock()
		if n.open(from.Addr(), to.Addr()) && n.open(to.Addr(), from.Addr()) {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return gaveUp()
		case <-n.done:
			return fail(net.ErrClosed)
		}
	}
	if roundTrip := n.travel() + n.travel(); roundTrip > 0 {
		timer := time.NewTimer(roundTrip)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return gaveUp()
		case <-n.done:
			return fail(net.ErrClosed)
		}
	}

	n.mu.Lock()
	l := n.streams[to]
	if l == nil || n.closed {
		n.mu.Unlock()
		n.counters.dialsRefused.Add(1)
		return fail(os.NewSyscallError("connect", syscall.ECONNREFUSED))
	}
	ours, theirs := newConns(n, from, to)
	n.conns[ours], n.conns[theirs] = struct{}{}, struct{}{}
	n.mu.Unlock()
	select {
	case l.incoming <- theirs:
		if l.isClosed() { // it may have emptied its backlog before this connection was added
			l.drain()
		}
		n.counters.dialsOK.Add(1)
		return ours, nil
	case <-l.done:
		err = os.NewSyscallError("connect", syscall.ECONNREFUSED)
		n.counters.dialsRefused.Add(1)
	case <-ctx.Done():
		_, opErr := gaveUp()
		err = opErr.(*net.OpError).Err
	}
	_ = ours.Close()
	_ = theirs.Close()
	return fail(err)
}

// backlog is how many connections can wait for Accept before dials wait.
const backlog = 256

type listener struct {
	network  *Network
	at       netip.AddrPort
	incoming chan *conn
	once     sync.Once
	done     chan struct{}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case <-l.done:
	default:
		select {
		case c := <-l.incoming:
			return c, nil
		case <-l.done:
		}
	}
	return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.Addr(), Err: net.ErrClosed}
}

func (l *listener) Addr() net.Addr { return net.TCPAddrFromAddrPort(l.at) }

func (l *listener) isClosed() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

func (l *listener) Close() error {
	err := error(&net.OpError{Op: "close", Net: "tcp", Addr: l.Addr(), Err: net.ErrClosed})
	l.once.Do(func() {
		err = nil
		l.network.mu.Lock()
		delete(l.network.streams, l.at)
		l.network.mu.Unlock()
		close(l.done)
		l.drain()
	})
	return err
}

// drain closes connections that will not be accepted any more.
func (l *listener) drain() {
	for {
		select {
		case c := <-l.incoming:
			_ = c.Close()
		default:
			return
		}
	}
}

var (
	_ net.Listener = (*listener)(nil)
	_ fmt.Stringer = Counters{}
)
