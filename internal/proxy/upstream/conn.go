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
// exchange while it is busy. The pool's lock guards ctx, slot, cancelled, progress and
// generation.
type conn struct {
	net.Conn
	socket  socket.Socket
	wrapped bool // TLS: bytes may be a session ticket
	one     [1]byte

	used    bool      // an exchange was completed on it
	resting time.Time // not used again before this time; zero means no wait
	long    bool      // it rests for restLong
	answers uint      // that ended on it

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

// look finds out what an idle connection has: nothing, bytes that belong to no request, or its
// end. What TLS itself has sent is neither, but before the first answer it may be a session
// ticket, and later the connection has likely ended.
func (c *conn) look() socket.Sight {
	sight := c.socket.Look()
	switch {
	case !c.wrapped:
		if sight == socket.Arrived && c.timedOut() {
			return socket.Gone
		}
		return sight
	case !c.used && sight == socket.Arrived:
		return socket.Quiet
	case sight != socket.Quiet:
		return socket.Gone
	case c.used:
		return c.readAhead()
	}
	return socket.Quiet
}

// timedOut reports whether the bytes that have arrived are an answer 408, with which a server
// may end a connection that waits for a request (RFC 9110 §15.5.9). The connection cannot be
// used afterwards.
func (c *conn) timedOut() bool {
	buf := make([]byte, len("HTTP/1.1 408"))
	n, _ := c.Read(buf) // does not wait
	return n == len(buf) && string(buf[:7]) == "HTTP/1." && string(buf[8:]) == " 408"
}

// readAhead finds the bytes that TLS has already read from the socket. A deadline in the past
// keeps the read from reaching the socket. crypto/tls does not keep such an error.
func (c *conn) readAhead() socket.Sight {
	if c.SetReadDeadline(expiredDeadline) != nil {
		return socket.Gone
	}
	n, err := c.Read(c.one[:])
	switch {
	case n > 0:
		return socket.Arrived
	case !errors.Is(err, os.ErrDeadlineExceeded) || c.SetReadDeadline(time.Time{}) != nil:
		return socket.Gone
	}
	return socket.Quiet
}
