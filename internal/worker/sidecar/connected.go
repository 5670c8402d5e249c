package sidecar

import (
	"crypto/tls"
	"net"
	"sync"

	"github.com/ringway/ringway/membership/identity"
)

// connected notes which relays have connected, until there are enough. Relays connect to the
// workers of their range as soon as they have planned with them.
type connected struct {
	net.Listener // returns connections whose handshake is complete
	source       *identity.Source
	enough       int

	mu     sync.Mutex
	relays map[string]bool // by node
}

// Accept implements net.Listener.
func (c *connected) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if secured, ok := conn.(*tls.Conn); ok && err == nil {
		c.record(secured.ConnectionState())
	}
	return conn, err
}

func (c *connected) record(state tls.ConnectionState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.relays) >= c.enough {
		return
	}
	// An observer may connect to any worker, so it proves nothing about the plan.
	if claims, err := c.source.PeerClaims(state); err == nil && claims.Role == identity.RoleRelay {
		c.relays[claims.Node] = true
	}
}

func (c *connected) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.relays)
}
