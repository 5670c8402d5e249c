package downstream

import (
	"errors"
	"os"
	"sync"
	"time"
)

// readAhead reads from a TLS connection while its request is answered: the bytes on the
// socket may be the client's goodbye, or the next request.
type readAhead struct {
	mu      sync.Mutex    // guards the fields below
	allowed bool          // a request is in flight
	running chan struct{} // closed at the end of the read; nil if there was none
	got     []byte
}

func (a *readAhead) allow() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.allowed = true
}

// start begins the read of a connection whose request in flight was read to its end.
func (a *readAhead) start(c *conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.allowed || a.running != nil || !c.whole.Load() {
		return
	}
	a.running = make(chan struct{})
	go func() {
		defer close(a.running)
		buf := make([]byte, 512)
		n, err := c.nc.Read(buf)
		a.got = buf[:n] // stop reads it after the channel is closed
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			c.cancelRequest()
		}
	}()
}

// stop ends the read and puts its bytes behind those of the connection.
func (a *readAhead) stop(c *conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.allowed = false
	if a.running == nil {
		return
	}
	_ = c.nc.SetReadDeadline(longAgo)
	<-a.running
	_ = c.nc.SetReadDeadline(time.Time{})
	if len(a.got) > 0 {
		c.takeBuffer()
		if c.from == c.to {
			c.from, c.to = 0, 0
		}
		c.in = append(c.in[:c.to], a.got...)
		c.to = len(c.in)
		c.in = c.in[:cap(c.in)]
	}
	a.running, a.got = nil, nil
}

// longAgo makes a waiting read return.
var longAgo = time.Unix(1, 0)
