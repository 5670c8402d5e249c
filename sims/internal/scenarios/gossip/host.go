package gossip

import (
	"context"
	"net"
	"sync/atomic"

	"github.com/ringway/ringway/membership/memnet"
)

// host is one machine of the network in memory. It counts the bytes of its own streams, in
// both directions: what a member that joins downloads and uploads.
type host struct {
	*memnet.Host
	streamed atomic.Uint64
	// thin, while set, lets only each third of the large packets through: see form.
	thin  *atomic.Bool
	large atomic.Uint64
}

// largePacket is more than a probe has, and less than a packet of many news.
const largePacket = 400

// ListenPacket opens a socket that may be told to thin out what is sent.
func (h *host) ListenPacket(addr string) (net.PacketConn, error) {
	c, err := h.Host.ListenPacket(addr)
	if err != nil {
		return nil, err
	}
	return thinnedConn{c, h}, nil
}

type thinnedConn struct {
	net.PacketConn
	host *host
}

func (c thinnedConn) WriteTo(b []byte, to net.Addr) (int, error) {
	if len(b) > largePacket && c.host.thin.Load() && c.host.large.Add(1)%3 != 0 {
		return len(b), nil
	}
	return c.PacketConn.WriteTo(b, to)
}

// Dial opens a stream and counts it.
func (h *host) Dial(ctx context.Context, addr string) (net.Conn, error) {
	c, err := h.Host.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	return countedConn{c, h}, nil
}

// Listen accepts streams and counts them.
func (h *host) Listen(addr string) (net.Listener, error) {
	l, err := h.Host.Listen(addr)
	if err != nil {
		return nil, err
	}
	return countedListener{l, h}, nil
}

type countedListener struct {
	net.Listener
	host *host
}

func (l countedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return countedConn{c, l.host}, nil
}

type countedConn struct {
	net.Conn
	host *host
}

func (c countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.host.streamed.Add(uint64(n))
	return n, err
}

func (c countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.host.streamed.Add(uint64(n))
	return n, err
}
