package http2

import (
	"errors"
	"os"
	"time"

	"github.com/ringway/ringway/internal/proxy/socket"
)

// Close ends the connection and all its streams immediately.
func (c *Conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out = c.out[:0]
	c.fail(ErrClosed)
	return socket.Below(c.nc).Close() // TLS would send an alert first, which the other side could delay
}

// Shutdown lets the streams end and then the connection: the other side gets GOAWAY, and
// opens no more streams.
func (c *Conn) Shutdown() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.goingAway || c.err != nil {
		return
	}
	c.goAway()
}

// goAway sends GOAWAY. The lock is held.
func (c *Conn) goAway() {
	c.goingAway = true
	c.takeOut()
	if c.client {
		c.out = appendGoAway(c.out, 0, NoError, "")
	} else {
		// The streams that are on the way are served: the answer to the PING comes after them.
		c.out = appendGoAway(c.out, maxStreamID, NoError, "")
		c.out = appendPing(c.out, 0, shutdownPing)
	}
	c.kick()
	c.endIfDone()
}

// endIntake refuses the streams that were not opened yet. The lock is held.
func (c *Conn) endIntake() {
	c.lastServed = c.opened
	c.takeOut()
	c.out = appendGoAway(c.out, c.lastServed, NoError, "")
	c.kick()
	c.endIfDone()
}

// endIfDone ends a connection that goes away when its streams have ended. The lock is held.
func (c *Conn) endIfDone() {
	switch {
	case c.active > 0:
	case c.client && (c.goingAway || c.away != nil):
		c.fail(ErrClosed)
	case c.goingAway && c.lastServed != maxStreamID && c.err == nil:
		c.lingers = true // the client may not have read its last answer
		c.fail(ErrClosed)
		_ = c.nc.SetReadDeadline(time.Unix(1, 0)) // Run lingers when everything was sent
	}
}

// linger reads a short rest, so that the other side gets GOAWAY and not a reset. In order, it does so
// until the client has everything: what arrives on a socket that was closed makes the system
// drop what it has not sent yet, such as the end of the last answer.
func (c *Conn) linger(inOrder bool) {
	left, stalled, read := socket.Unsent(c.nc), time.Duration(0), 0
	for {
		_ = c.nc.SetReadDeadline(time.Now().Add(lingerTime))
		for err := error(nil); err == nil && read < lingerBytes; {
			if err = c.await(); !errors.Is(err, os.ErrDeadlineExceeded) && err != nil {
				inOrder = false // it is over
			}
			read += c.to
		}
		// As much as one write counts as progress, because a client must not hold the connection with
		// a byte now and then.
		now := socket.Unsent(c.nc)
		if stalled += lingerTime; now <= left-writePiece {
			left, stalled = now, 0
		}
		if !inOrder || now == 0 || read >= lingerBytes || stalled > c.cfg.Progress {
			break
		}
	}
	_ = c.nc.Close() // it was half closed
}

const (
	lingerTime  = 500 * time.Millisecond
	lingerBytes = 1 << 20
	// lastWrites bounds how long a connection that has ended still sends what waits, unless it ends in
	// order and Check bounds that.
	lastWrites = 5 * time.Second
)

// Err returns why the connection accepts no more streams, nil while it does.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unusable()
}

func (c *Conn) unusable() error {
	switch {
	case c.err != nil:
		return c.err
	case c.away != nil:
		return c.away
	case c.goingAway:
		return ErrClosed
	case c.client && c.opened >= maxStreamID-2:
		return ErrClosed // the numbers of streams are used up
	}
	return nil
}

// shutdownPing is the PING whose answer ends the first part of Shutdown.
var shutdownPing = [8]byte{'g', 'o', 'i', 'n', 'g', 'a', 'w', 'y'}
