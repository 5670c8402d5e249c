package membership

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

const (
	// pingTries is how often Ping sends: one lost packet is no finding.
	pingTries = 3
)

// Ping asks a member over UDP, as memberlist's failure detector does, and returns the
// round trip. Unlike that one it has nobody else ask and does not fall back to TCP:
// a member that stays alive only by those is what it is for. A packet has half a
// second to come back and is sent three times. The context is looked at between tries.
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
			return max(0, trip), nil // memberlist starts its clock after sending, now and then after the answer
		}
	}
	return 0, fmt.Errorf("ping %s at %s over UDP, %d times: %w", memberID, m.GossipAddr, pingTries, err)
}
