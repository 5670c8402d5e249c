package membership

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/ringway/ringway/internal/handshake"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/membership/internal/gossip"
	"github.com/ringway/ringway/membership/internal/trust"
)

const (
	// packetBuffer is the number of packets buffered between the socket and memberlist.
	packetBuffer = 1024
	// maxPacket is the largest possible UDP payload.
	maxPacket = 65535
	// udpReceiveBuffer is the requested size; the kernel may grant less.
	udpReceiveBuffer = 2 << 20
	// The two directions of a refusal, as metric labels.
	inbound, outbound = "inbound", "outbound"
	// greetTimeout limits the hello on a stream that is opened for certificates only.
	greetTimeout = 2 * time.Second
)

// transport carries memberlist's packets and streams, and the streams of this package, over one
// port. It implements memberlist's NodeAwareTransport.
//
//	UDP ──► label check ──────────────► PacketCh
//	TCP ──► hello ──► "ml/1" ─────────► StreamCh
//	             └──► "adsync/1", … ──► the handler registered for it
//
// memberlist calls WriteToAddress from its packet loop, so that method never dials and never blocks
// for long. It returns nil or a bare *net.OpError: any other error would disable failure detection
// for that peer.
type transport struct {
	network Network
	hello   func() hello // changes with the keyring
	header  []byte       // of each packet: the label as memberlist writes it
	// placeholder is an instance that receives no packets.
	placeholder string
	// identity is nil if streams are in clear text.
	identity *identity.Source
	// guard is nil without certificates. heard is then called with the sender of each packet.
	guard   *trust.Guard
	heard   func(from string)
	logger  *slog.Logger
	metrics *metrics

	packets net.PacketConn
	streams net.Listener

	packetCh chan *memberlist.Packet
	streamCh chan net.Conn

	// handlers is written before start and afterwards only read.
	handlers map[string]func(context.Context, Peer, net.Conn)

	refusals refusals

	ctx    context.Context // ends with shutdown
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu   sync.Mutex // guards open
	open map[net.Conn]struct{}
}

// bind opens both sockets on one port. With port 0 it takes a port that is free for both, which can
// need several tries, because the kernel considers only TCP.
func bind(network Network, addr string) (net.PacketConn, net.Listener, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, nil, fmt.Errorf("gossip address %q: %w: give IP:port", addr, err)
	}
	tries := 1
	if port == "0" {
		tries = 10
	}
	for range tries {
		var ln net.Listener
		if ln, err = network.Listen(addr); err != nil {
			continue
		}
		_, bound, _ := net.SplitHostPort(ln.Addr().String())
		var pc net.PacketConn
		if pc, err = network.ListenPacket(net.JoinHostPort(host, bound)); err == nil {
			return pc, ln, nil
		}
		_ = ln.Close()
	}
	return nil, nil, fmt.Errorf("listen for gossip on %s: %w", addr, err)
}

func newTransport(cfg Config, h func() hello, m *metrics) (*transport, error) {
	network := cfg.Network
	if network == nil {
		network = sockets{}
	}
	packets, streams, err := bind(network, cfg.BindAddr)
	if err != nil {
		return nil, err
	}
	if udp, ok := packets.(*net.UDPConn); ok {
		_ = udp.SetReadBuffer(udpReceiveBuffer) // best effort; the default also works
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &transport{
		network: network, hello: h, identity: cfg.Identity, header: gossip.LabelHeader(cfg.label()), placeholder: gossip.InstanceName(cfg.ID, 0), logger: cfg.Logger, metrics: m,
		packets: packets, streams: streams,
		packetCh: make(chan *memberlist.Packet, packetBuffer),
		streamCh: make(chan net.Conn),
		handlers: make(map[string]func(context.Context, Peer, net.Conn)),
		ctx:      ctx, cancel: cancel,
		open: make(map[net.Conn]struct{}),
	}, nil
}

// start begins to receive. Shutdown waits for all goroutines started here.
func (t *transport) start() {
	t.wg.Go(t.receivePackets)
	t.wg.Go(t.acceptStreams)
	if t.guard != nil {
		t.wg.Go(func() { t.guard.Run(t.ctx, t.greetInBackground()) })
	}
}

// greetInBackground returns a function that exchanges hellos with a member over a stream, a
// few at a time, to get its certificates from the handshake.
func (t *transport) greetInBackground() func(addr string) bool {
	places := make(chan struct{}, 4)
	return func(addr string) bool {
		select {
		case places <- struct{}{}:
		default:
			return false
		}
		t.wg.Go(func() {
			defer func() { <-places }()
			ctx, cancel := context.WithTimeout(t.ctx, greetTimeout)
			defer cancel()
			if conn, _, err := t.dial(ctx, addr, protocolProbe); err == nil {
				_ = conn.Close()
			}
		})
		return true
	}
}

// receivePackets passes packets to the guard or to memberlist. Packets of other clusters end here,
// before anything is decrypted or decoded.
func (t *transport) receivePackets() {
	buf := make([]byte, maxPacket)
	for {
		n, from, err := t.packets.ReadFrom(buf)
		now := time.Now()
		switch {
		case t.ctx.Err() != nil:
			return
		case err != nil:
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue
		case !t.labelled(buf[:n]):
			t.metrics.packetDropped(dropLabel)
			continue
		case t.guard != nil:
			t.guard.Receive(buf[:n], from.String())
			continue
		}
		if t.heard != nil {
			t.heard(from.String())
		}
		t.queue(&memberlist.Packet{Buf: append([]byte(nil), buf[:n]...), From: from, Timestamp: now})
	}
}

// queue passes a packet to memberlist.
func (t *transport) queue(packet *memberlist.Packet) {
	select {
	case t.packetCh <- packet:
	default: // gossip tolerates loss; blocking here would lose more packets
		t.metrics.packetDropped(dropQueueFull)
	}
}

// deliver passes a packet that the guard accepted to memberlist. from is IP:port.
func (t *transport) deliver(packet []byte, from string) {
	addr, err := netip.ParseAddrPort(from)
	if err != nil {
		t.metrics.packetDropped(dropBadAddress)
		return
	}
	t.queue(&memberlist.Packet{Buf: packet, From: net.UDPAddrFromAddrPort(addr), Timestamp: time.Now()})
}

// sendRaw sends a packet of the guard itself. The guard repeats lost packets.
func (t *transport) sendRaw(packet []byte, to string) {
	addr, err := netip.ParseAddrPort(to)
	if err != nil {
		t.metrics.packetDropped(dropBadAddress)
		return
	}
	if _, err := t.packets.WriteTo(packet, net.UDPAddrFromAddrPort(addr)); err != nil {
		t.metrics.packetDropped(dropWrite)
	}
}

// labelled recognises packets of this cluster, so that memberlist does not log a line for each
// packet of another cluster.
func (t *transport) labelled(b []byte) bool {
	return len(b) > len(t.header) && bytes.HasPrefix(b, t.header)
}

func (t *transport) acceptStreams() {
	const quiet = 10 * time.Second // between two warnings: a shortage may last
	pending, pace := handshake.NewPending(handshake.PendingConfig{Limit: helloTimeout}), handshake.NewPace()
	var warned time.Time
	for {
		conn, err := t.streams.Accept()
		switch {
		case t.ctx.Err() != nil:
			if err == nil {
				_ = conn.Close()
			}
			return
		case err != nil:
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if now := time.Now(); now.Sub(warned) >= quiet {
				warned = now
				t.logger.Warn("accept gossip stream", "err", err)
			}
			pause(t.ctx, 50*time.Millisecond) // most likely out of descriptors
			continue
		}
		accepted := pending.Add(conn)
		t.wg.Go(func() { t.serve(accepted, pace) })
	}
}

// serve exchanges hellos on one incoming connection and passes it to its handler. Until the peer is
// admitted, the connection is pending and may be closed to make room for another one.
func (t *transport) serve(accepted *handshake.PendingConn, pace *handshake.Pace) {
	var conn net.Conn = accepted
	if t.identity != nil {
		accepted.Pace(t.ctx, pace)
		conn = t.identity.Watch(accepted)
	}
	t.track(conn)
	g, err := t.secureInbound(conn)
	var peer Peer
	var protocol string
	if err == nil {
		peer, protocol, err = g.admit(t.serves)
		t.listUnsigned(g, err)
	}
	if err == nil {
		err = t.learn(peer, g)
	}
	if ended := accepted.Remove(); ended != "" {
		err = &closedError{reason: ended, err: err}
	} else if errors.Is(err, handshake.ErrPace) {
		err = &closedError{reason: handshake.ReasonPace, err: err}
	}
	if err != nil {
		t.forget(conn)
		_ = conn.Close()
		t.reportRefusal(inbound, conn.RemoteAddr().String(), err)
		return
	}
	raw := conn
	conn = g.conn
	if protocol == protocolMemberlist {
		if t.guard != nil {
			if conn = t.guard.Accepted(g.conn, peer.ID, peer.Epoch); conn == nil {
				t.forget(raw)
				_ = g.conn.Close()
				return
			}
		}
		t.forget(raw) // memberlist closes its own streams
		select {
		case t.streamCh <- conn:
		case <-t.ctx.Done():
			_ = conn.Close()
		}
		return
	}
	defer func() {
		t.forget(raw)
		_ = conn.Close()
	}()
	t.handlers[protocol](t.ctx, peer, conn)
}

func (t *transport) serves(protocol string) bool {
	_, ours := t.handlers[protocol]
	return ours || protocol == protocolMemberlist
}

// track lets Shutdown close connections whose hello or handler is still running.
func (t *transport) track(conn net.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx.Err() != nil {
		_ = conn.Close()
		return
	}
	t.open[conn] = struct{}{}
}

func (t *transport) forget(conn net.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.open, conn)
}

// dial opens a stream to addr and exchanges hellos.
func (t *transport) dial(ctx context.Context, addr, protocol string) (net.Conn, Peer, error) {
	conn, err := t.network.Dial(ctx, addr)
	if err != nil {
		t.refusals.outlived(addr)
		return nil, Peer{}, err
	}
	if t.identity != nil {
		conn = t.identity.Watch(conn)
	}
	t.track(conn) // so that a shutdown does not wait for an acceptor that does not answer
	g, err := t.secureOutbound(ctx, conn, protocol)
	var peer Peer
	if err == nil {
		peer, err = g.greet(ctx, protocol)
		t.listUnsigned(g, err)
	}
	if err == nil {
		err = t.learn(peer, g)
	}
	t.forget(conn)
	if err != nil {
		err = refusedByAlert(addr, err)
		_ = conn.Close()
		t.reportRefusal(outbound, addr, err)
		return nil, Peer{}, err
	}
	t.refusals.clear(addr)
	return g.conn, peer, nil
}

// FinalAdvertiseAddr returns the address that memberlist announces to other members.
func (t *transport) FinalAdvertiseAddr(ip string, port int) (net.IP, int, error) {
	addr, err := netip.ParseAddr(ip)
	if err != nil {
		return nil, 0, fmt.Errorf("advertise address %q: %w", ip, err)
	}
	return net.IP(addr.Unmap().AsSlice()), port, nil
}

// WriteTo sends one packet.
func (t *transport) WriteTo(b []byte, addr string) (time.Time, error) {
	return t.WriteToAddress(b, memberlist.Address{Addr: addr})
}

// WriteToAddress sends one packet. The error is nil or a bare *net.OpError.
func (t *transport) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	if a.Name == t.placeholder {
		return time.Now(), nil
	}
	to, err := netip.ParseAddrPort(a.Addr)
	if err != nil {
		// Addresses from gossip were checked when they were received. Dropping the packet lets
		// the failure detector decide.
		t.metrics.packetDropped(dropBadAddress)
		return time.Now(), nil
	}
	to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
	if t.guard != nil {
		if b, err = t.guard.Wrap(b, to.String()); err != nil {
			t.metrics.packetDropped(dropWrite)
			return time.Now(), nil
		}
	}
	_, err = t.packets.WriteTo(b, net.UDPAddrFromAddrPort(to))
	var op *net.OpError
	if errors.As(err, &op) {
		return time.Now(), op
	}
	if err != nil {
		t.metrics.packetDropped(dropWrite)
	}
	return time.Now(), nil
}

// PacketCh delivers packets with the label of this cluster.
func (t *transport) PacketCh() <-chan *memberlist.Packet { return t.packetCh }

// DialTimeout opens a stream for memberlist.
func (t *transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return t.DialAddressTimeout(memberlist.Address{Addr: addr}, timeout)
}

// DialAddressTimeout opens a stream for memberlist.
func (t *transport) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(t.ctx, timeout)
	defer cancel()
	conn, peer, err := t.dial(ctx, a.Addr, protocolMemberlist)
	if err != nil || t.guard == nil {
		return conn, err
	}
	return t.guard.Dialled(conn, peer.ID, a.Addr), nil
}

// StreamCh delivers streams of admitted members.
func (t *transport) StreamCh() <-chan net.Conn { return t.streamCh }

// Shutdown closes the sockets and every connection whose hello or handler is still running,
// and waits for their goroutines.
func (t *transport) Shutdown() error {
	t.mu.Lock()
	t.cancel()
	for conn := range t.open {
		_ = conn.Close()
	}
	t.mu.Unlock()
	err := errors.Join(t.packets.Close(), t.streams.Close())
	t.wg.Wait()
	return err
}
