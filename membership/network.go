package membership

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// Network transports a node's packets and streams: over real sockets, unless a test runs a
// cluster under a virtual clock.
type Network interface {
	// ListenPacket and Listen bind the same address: one port carries both.
	ListenPacket(addr string) (net.PacketConn, error)
	Listen(addr string) (net.Listener, error)
	Dial(ctx context.Context, addr string) (net.Conn, error)
}

// sockets is the network of the operating system.
type sockets struct{}

// ListenPacket binds a UDP address.
func (sockets) ListenPacket(addr string) (net.PacketConn, error) {
	return net.ListenPacket("udp", addr)
}

// Listen binds a TCP address.
func (sockets) Listen(addr string) (net.Listener, error) { return net.Listen("tcp", addr) }

// Dial opens a TCP connection.
func (sockets) Dial(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", addr)
}

const (
	// pingTries is how often Ping sends, because a single packet may be lost.
	pingTries = 3
)

// Ping probes a member over UDP like memberlist's failure detector, and returns the round-trip
// time. Unlike the failure detector it uses no helpers and does not fall back to TCP, so that it
// detects members that are alive only because of these. Ping sends up to three packets and waits
// half a second for the answer to each. The context is checked between tries.
func (n *Node) Ping(ctx context.Context, memberID string) (time.Duration, error) {
	s := n.Snapshot()
	if s == nil {
		return 0, errors.New("ping: the node is not started")
	}
	m, ok := s.Get(memberID)
	if !ok {
		return 0, fmt.Errorf("ping %q: no such member is alive", memberID)
	}
	addr, err := net.ResolveUDPAddr("udp", m.GossipAddr)
	if err != nil {
		return 0, fmt.Errorf("ping %s: %w", memberID, err)
	}
	for range pingTries {
		if err := ctx.Err(); err != nil {
			return 0, fmt.Errorf("ping %s: %w", memberID, err)
		}
		var trip time.Duration
		if trip, err = n.list.Ping(m.Instance(), addr); err == nil {
			return max(0, trip), nil // memberlist starts its clock after sending, so the trip can be negative
		}
	}
	return 0, fmt.Errorf("ping %s at %s over UDP, %d times: %w", memberID, m.GossipAddr, pingTries, err)
}
