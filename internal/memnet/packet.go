package memnet

import (
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"
)

const (
	// receiveQueue is how many packets wait for ReadFrom before further ones are dropped.
	receiveQueue = 8192
	// maxPayload is the largest UDP payload over IPv4.
	maxPayload = 65507
)

type packet struct {
	data []byte
	from netip.AddrPort
}

type packetConn struct {
	network *Network
	at      netip.AddrPort

	gate   // guards the fields below; its deadline is the reader's
	queue  []packet
	closed bool
}

func newPacketConn(n *Network, at netip.AddrPort) *packetConn {
	s := &packetConn{network: n, at: at}
	s.gate.init()
	return s
}

func (s *packetConn) fail(op string, err error) error {
	return &net.OpError{Op: op, Net: "udp", Source: s.LocalAddr(), Err: err}
}

// ReadFrom truncates a packet that does not fit, like UDP.
func (s *packetConn) ReadFrom(b []byte) (int, net.Addr, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.closed:
			return 0, nil, s.fail("read", net.ErrClosed)
		case s.expired():
			return 0, nil, s.fail("read", os.ErrDeadlineExceeded)
		case len(s.queue) > 0:
			p := s.queue[0]
			s.queue[0] = packet{}
			s.queue = s.queue[1:]
			return copy(b, p.data), net.UDPAddrFromAddrPort(p.from), nil
		}
		s.wait()
	}
}

// WriteTo never blocks. A packet that does not arrive is not an error.
func (s *packetConn) WriteTo(b []byte, addr net.Addr) (int, error) {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return 0, s.fail("write", net.ErrClosed)
	}
	udp, ok := addr.(*net.UDPAddr)
	if !ok {
		return 0, s.fail("write", net.InvalidAddrError("not a *net.UDPAddr"))
	}
	if len(b) > maxPayload {
		return 0, s.fail("write", os.NewSyscallError("sendto", syscall.EMSGSIZE))
	}
	to := udp.AddrPort()
	to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())

	n := s.network
	n.counters.packets.Add(1)
	n.counters.packetBytes.Add(uint64(len(b)))
	switch {
	case !n.open(s.at.Addr(), to.Addr()):
		n.counters.blocked.Add(1)
	case n.lost():
		n.counters.lost.Add(1)
	default:
		p := packet{data: append([]byte(nil), b...), from: s.at}
		if d := n.travel(); d > 0 {
			time.AfterFunc(d, func() { n.deliver(p, to) })
		} else {
			n.deliver(p, to)
		}
	}
	return len(b), nil
}

func (n *Network) deliver(p packet, to netip.AddrPort) {
	n.mu.RLock()
	s := n.sockets[to]
	n.mu.RUnlock()
	if s == nil {
		n.counters.unbound.Add(1)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		n.counters.unbound.Add(1)
	case len(s.queue) >= receiveQueue:
		n.counters.overflowed.Add(1)
	default:
		n.counters.delivered.Add(1)
		s.queue = append(s.queue, p)
		s.cond.Signal()
	}
}

func (s *packetConn) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return s.fail("close", net.ErrClosed)
	}
	s.closed, s.queue = true, nil
	s.stop()
	s.cond.Broadcast()
	s.mu.Unlock()

	s.network.mu.Lock()
	defer s.network.mu.Unlock()
	delete(s.network.sockets, s.at)
	return nil
}

func (s *packetConn) LocalAddr() net.Addr { return net.UDPAddrFromAddrPort(s.at) }

func (s *packetConn) SetDeadline(t time.Time) error { return s.SetReadDeadline(t) }

func (s *packetConn) SetReadDeadline(t time.Time) error {
	s.setDeadline(t)
	return nil
}

// SetWriteDeadline has no effect: writes never block.
func (s *packetConn) SetWriteDeadline(time.Time) error { return nil }

var _ net.PacketConn = (*packetConn)(nil)
