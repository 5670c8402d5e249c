package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"time"

	"github.com/ringway/ringway/internal/proxy/socket"
)

// conn is one HTTP/1.1 connection to the endpoint. The pool owns it while it is idle, one
// Carry while it is busy. The pool's lock guards ctx, slot, cancelled, progress and
// generation.
type conn struct {
	net.Conn
	socket  socket.Socket
	wrapped bool // TLS: bytes may be a session ticket
	one     [1]byte

	used    bool      // an exchange was completed on it
	resting time.Time // not used again before this time; zero means no wait

	ctx        context.Context // of the request on it, nil when idle
	slot       int             // place in Pool.busy
	cancelled  bool            // interrupted by the watch or closed by Drain
	progress   *progress       // of the exchange on it, nil when idle
	generation uint64          // Pool.generation when it was put back
}

func newConn(nc net.Conn) *conn {
	c := &conn{Conn: nc}
	_, c.wrapped = nc.(*tls.Conn)
	c.socket.Init(socket.Below(nc))
	return c
}

// bare reports whether the socket has the bytes of the connection, not those of TLS.
func (c *conn) bare() bool { return !c.wrapped && c.socket.Usable() }

func (c *conn) write(b []byte) (int, error) {
	if c.bare() {
		return c.socket.Write(b)
	}
	return c.Write(b)
}

// rests reports whether it is too early to use the connection again.
func (c *conn) rests() bool { return !c.resting.IsZero() && time.Now().Before(c.resting) }

// stale reports whether an idle connection is closed or holds bytes that belong to no
// request.
func (c *conn) stale() bool {
	switch c.socket.Look() {
	case socket.Gone:
		return true
	case socket.Arrived:
		return c.used || !c.wrapped
	}
	return c.used && c.wrapped && c.readAhead()
}

// readAhead reports whether TLS holds bytes that it has already read from the socket. A
// deadline in the past keeps the read from reaching the socket. crypto/tls does not keep
// such an error.
func (c *conn) readAhead() bool {
	if c.SetReadDeadline(expiredDeadline) != nil {
		return true
	}
	n, err := c.Read(c.one[:])
	return n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) || c.SetReadDeadline(time.Time{}) != nil
}
