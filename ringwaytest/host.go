package ringwaytest

import (
	"context"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"

	"github.com/ringway/ringway/internal/memnet"
)

// host is the network of one member, until it is killed.
type host struct {
	*memnet.Host
	gossips atomic.Bool // a packet socket is open
	killed  atomic.Bool
}

func (h *host) addr(port uint16) string { return netip.AddrPortFrom(h.IP(), port).String() }

// alive reports whether a member gossips here.
func (h *host) alive() bool { return h.gossips.Load() && !h.killed.Load() }

// kill closes all that is open. What still runs of the member cannot open anything more.
func (h *host) kill() {
	h.killed.Store(true)
	h.Crash()
}

var errKilled = os.NewSyscallError("bind", syscall.EADDRNOTAVAIL)

// ListenPacket implements membership.Network.
func (h *host) ListenPacket(addr string) (net.PacketConn, error) {
	if h.killed.Load() {
		return nil, &net.OpError{Op: "listen", Net: "udp", Err: errKilled}
	}
	packets, err := h.Host.ListenPacket(addr)
	if err != nil {
		return nil, err
	}
	h.gossips.Store(true)
	return &gossip{packets, h}, nil
}

// Listen implements membership.Network.
func (h *host) Listen(addr string) (net.Listener, error) {
	if h.killed.Load() {
		return nil, &net.OpError{Op: "listen", Net: "tcp", Err: errKilled}
	}
	return h.Host.Listen(addr)
}

// Dial implements membership.Network.
func (h *host) Dial(ctx context.Context, addr string) (net.Conn, error) {
	if h.killed.Load() {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errKilled}
	}
	return h.Host.Dial(ctx, addr)
}

// gossip is the packet socket of a member.
type gossip struct {
	net.PacketConn
	host *host
}

func (g *gossip) Close() error {
	g.host.gossips.Store(false)
	return g.PacketConn.Close()
}
