package membership

import (
	"context"
	"net"
)

// Network is where a node's packets and streams go: real sockets, unless a test
// runs a cluster under a virtual clock.
type Network interface {
	// ListenPacket and Listen bind the same address: one port carries both.
	ListenPacket(addr string) (net.PacketConn, error)
	Listen(addr string) (net.Listener, error)
	Dial(ctx context.Context, addr string) (net.Conn, error)
}

// Sockets is the network of the operating system.
type Sockets struct{}

// ListenPacket binds a UDP address.
func (Sockets) ListenPacket(addr string) (net.PacketConn, error) {
	return net.ListenPacket("udp", addr)
}

// Listen binds a TCP address.
func (Sockets) Listen(addr string) (net.Listener, error) { return net.Listen("tcp", addr) }

// Dial opens a TCP connection.
func (Sockets) Dial(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", addr)
}
