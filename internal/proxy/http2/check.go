package http2

import (
	"errors"
	"net"
	"time"

	"github.com/ringway/ringway/internal/proxy/socket"
)

// Check ends a connection that has stalled, and lets a client with a stream notice that the other side
// is gone: a PING asks one that is silent. It is called every elapsed.
func (c *Conn) Check(elapsed time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	limit := c.cfg.Progress
	if c.client {
		limit = unreadTimeout
	}
	if c.writing && limit > 0 {
		if c.blocked += elapsed; c.blocked > limit {
			c.fail(errStalled)
			below := socket.Below(c.nc)
			if tcp, ok := below.(interface{ SetLinger(sec int) error }); ok {
				_ = tcp.SetLinger(0) // else the system goes on sending what it holds, as slowly as it is read
			}
			_ = below.Close()
			return
		}
	}
	c.age += elapsed
	c.checkStreams(elapsed)
	c.refill(elapsed)
	c.endWorkers(min(c.spare, len(c.workers)))
	c.spare = len(c.workers)
	if !c.client && c.goingAway && c.lastServed == maxStreamID && c.err == nil {
		if c.draining += elapsed; c.draining >= drainTimeout {
			c.endIntake()
		}
	}
	heard := c.heard.Swap(false)
	limit = 0
	switch {
	case c.listing.Load():
		limit = c.cfg.HeadTimeout
	case c.partial.Load() && !heard:
		limit = c.cfg.Progress
	default:
		c.stuck = 0
	}
	if limit > 0 {
		if c.stuck += elapsed; c.stuck > limit {
			c.fail(errStuck)
			_ = socket.Below(c.nc).Close()
			return
		}
	}
	if heard || !c.client {
		c.silence = 0
		return
	}
	c.silence += elapsed
	switch {
	case c.err != nil:
	case c.pinged && c.silence > pingAfter+pingTimeout:
		c.fail(errSilent)
		_ = socket.Below(c.nc).Close()
	case !c.pinged && c.asks():
		c.pinged, c.silence = true, pingAfter // from now on it counts the time for the answer
		c.pings, c.asked = c.pings+1, c.opened
		c.takeOut()
		c.out = appendPing(c.out, 0, [8]byte{})
		c.kick()
	}
}

// asks reports whether a PING asks the silent server of a stream whether it is there. Servers of gRPC
// end a connection on which PINGs come while they send neither HEADERS nor DATA: the third that comes
// within five minutes of the one before, or within two hours while there is no stream. So the
// first such silence has one PING and a later stream another one, and the next ones come rarely. A host
// that vanishes meanwhile is found by the system, see probe, but not while it owes an acknowledgement:
// then the system repeats what was sent for a quarter of an hour. A PING that is not acknowledged
// either reaches no server that could count it. The lock is held.
func (c *Conn) asks() bool {
	switch {
	case len(c.streams) == 0:
		return false
	case c.silence < pingAfter:
		return false
	case c.pings == 0, c.pings == 1 && c.opened > c.asked, c.silence >= pingAgain:
		return true
	}
	return socket.Unsent(c.nc) > 0
}

// probe lets the system find out that the host of the other side has vanished, in the time that a
// PING would take, also without a stream. No server counts its probes.
func probe(nc net.Conn) {
	if tcp, ok := socket.Below(nc).(*net.TCPConn); ok {
		_ = tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: pingAfter, Interval: time.Second, Count: int(pingTimeout / time.Second)})
	}
}

// checkStreams resets the streams that could send nothing for the progress timeout: the other side
// opens no window, or does not read. The lock is held.
func (c *Conn) checkStreams(elapsed time.Duration) {
	if c.cfg.Progress == 0 {
		return
	}
	for _, s := range c.streams {
		if !s.waits {
			continue
		}
		if s.stalled += elapsed; s.stalled > c.cfg.Progress {
			s.reset(Cancel, errNoWindow)
		}
	}
}

// Idle returns how long the connection has had no stream, as the calls count it that are
// made every elapsed.
func (c *Conn) Idle(elapsed time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.active > 0 {
		c.idle = 0
	} else {
		c.idle += elapsed
	}
	return c.idle
}

const (
	// pingAfter and pingTimeout detect a connection whose other side is gone without closing
	// it: a request on it fails over after at most 10 s. Shorter times would cut off a peer
	// that only lacks processor time.
	pingAfter   = 5 * time.Second
	pingTimeout = 5 * time.Second
	// pingAgain is how long a silence lasts until a PING comes that no server counts: a minute
	// more than the five that they demand, because PINGs are not equally fast.
	pingAgain = 6 * time.Minute
	// unreadTimeout is how long a server may accept no byte. Its client goes on reading meanwhile, and
	// the answers to what it reads gather: no window bounds them.
	unreadTimeout = time.Minute
	// drainTimeout is how long a server waits for the answer to shutdownPing. A client that
	// has not answered by then opens its next streams elsewhere when they are refused.
	drainTimeout = time.Second
)

var (
	errStalled  = errors.New("http2: the other side has accepted no byte for the progress timeout, or as a server for a minute")
	errNoWindow = &ResetError{Code: Cancel, reason: "nothing of the answer was accepted for the progress timeout"}
	errStuck    = errors.New("http2: the other side has stopped within a frame or a header list")
	errSilent   = errors.New("http2: the other side answers no ping")
)
