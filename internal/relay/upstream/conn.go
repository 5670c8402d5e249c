package upstream

import (
	"context"
	"net"
	"syscall"
	"time"
)

// conn is one HTTP/1.1 connection to the endpoint. It belongs to the pool
// while idle and to one Carry while busy; ctx, slot, period and generation
// are guarded by the pool's lock.
type conn struct {
	net.Conn
	probe probe

	used     bool // an exchange was completed on it
	deadline bool // one is set on the socket

	ctx        context.Context // of the request on it, nil when idle
	slot       int             // place in Pool.busy
	cancelled  bool            // the watch has cut it off
	period     uint64          // Pool.period when it was put back
	generation uint64          // Pool.generation when it was put back
}

func newConn(nc net.Conn) *conn {
	c := &conn{Conn: nc}
	raw := nc
	if t, ok := nc.(interface{ NetConn() net.Conn }); ok { // *tls.Conn
		raw = t.NetConn()
		c.probe.wrapped = true
	}
	if s, ok := raw.(syscall.Conn); ok {
		if rc, err := s.SyscallConn(); err == nil {
			c.probe.init(rc)
		}
	}
	return c
}

// setDeadline puts the request's deadline on the socket, or takes the last
// one's away.
func (c *conn) setDeadline(t time.Time) error {
	if t.IsZero() && !c.deadline {
		return nil
	}
	c.deadline = !t.IsZero()
	return c.SetDeadline(t)
}

// stale reports whether an idle connection is over or holds bytes that nobody
// asked for.
func (c *conn) stale() bool {
	if c.deadline { // the last request's would fail the look
		c.deadline = false
		if c.SetDeadline(time.Time{}) != nil {
			return true
		}
	}
	return c.probe.stale(c.used)
}
