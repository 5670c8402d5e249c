package downstream

import (
	"time"

	"github.com/ringway/ringway/internal/proxy/socket"
)

// watchTick is how often the watch checks all connections. A client that goes away is
// noticed after one to two ticks.
const watchTick = 20 * time.Millisecond

// restAfter is how long a connection waits for a request before a fresh goroutine waits in place of
// its own, whose stack has grown with the requests and takes twice the memory. A connection pays for
// that at most as often.
const restAfter = 5 * time.Second

// phase is what a connection does.
type phase = int32

const (
	phaseNew     phase = iota // waits for its first byte
	phaseIdle                 // waits for the next request
	phaseLeaving              // its goroutine ends the wait, for one with a small stack
	phaseResting              // waits for the next request in that goroutine
	phaseHead                 // a part of a head has arrived
	phaseServing              // the handler runs
	phaseSending              // the rest of the answer is sent
	phaseHTTP2                // has streams
	phaseClosing              // ended by the watch or by Shutdown
)

// watch ends connections that are too late, and the contexts of requests whose clients went
// away. One loop over all connections costs less than timers and a waiting read for each
// request. It ends when there are no connections.
func (s *Server) watch() {
	tick := time.NewTicker(watchTick)
	defer tick.Stop()
	var due []*conn
	for range tick.C {
		now := int64(time.Since(s.epoch))
		s.clock.Store(now)
		s.mu.Lock()
		if len(s.conns) == 0 {
			s.watching = false
			s.mu.Unlock()
			return
		}
		for _, c := range s.conns {
			if c.check(now) {
				due = append(due, c)
			}
		}
		s.mu.Unlock()
		for _, c := range due {
			c.checkClient()
		}
		clear(due)
		due = due[:0]
	}
}

// check ends a connection that is too late. It reports whether a request has been in flight
// since the last check, so that the client may have gone away meanwhile.
func (c *conn) check(now int64) bool {
	limit := time.Duration(0)
	current := c.phase.Load()
	switch current {
	case phaseNew, phaseHead:
		limit = c.server.cfg.HeadTimeout
	case phaseIdle, phaseResting:
		limit = c.server.cfg.IdleTimeout
		if current == phaseIdle && now-c.since.Load() > int64(c.server.restAfter) {
			c.endWait()
		}
	case phaseSending:
		limit = c.server.cfg.SendTimeout
	case phaseServing:
		serial := c.serial.Load()
		same := serial == c.seen
		c.seen = serial
		return same && c.whole.Load()
	case phaseHTTP2:
		c.checkHTTP2(now)
	}
	if limit > 0 && now-c.since.Load() > int64(limit) && c.phase.CompareAndSwap(current, phaseClosing) {
		_ = c.below.Close() // its goroutine ends with it
	}
	return false
}

// over reports whether the connection ends.
func (c *conn) over(now int64) bool {
	until := c.until.Load()
	return until > 0 && now > until
}

// endWait makes the goroutine of an idle connection end its wait, for a fresh one.
func (c *conn) endWait() {
	if c.tcp == nil || !c.socket.Usable() {
		return
	}
	c.currentMu.Lock() // the goroutine removes the deadline afterwards
	defer c.currentMu.Unlock()
	if c.phase.CompareAndSwap(phaseIdle, phaseLeaving) {
		_ = c.tcp.SetReadDeadline(longAgo) // a closed connection ends the wait, too
	}
}

// waitEnded reports whether endWait has ended the wait. The connection is idle then, as before.
func (c *conn) waitEnded() bool {
	c.currentMu.Lock()
	defer c.currentMu.Unlock()
	if c.phase.Load() != phaseLeaving {
		return false
	}
	_ = c.tcp.SetReadDeadline(time.Time{})
	c.phase.Store(phaseIdle) // only its goroutine ends this phase
	return true
}

// closeIdle closes the connections that wait for a request, lets the streams of those over
// HTTP/2 end, and returns how many connections there are. A new connection gets the time in
// which net/http expects its first request.
func (s *Server) closeIdle() int {
	const firstRequest = int64(5 * time.Second)
	now := int64(time.Since(s.epoch))
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		current := c.phase.Load()
		if current == phaseHTTP2 {
			c.h2.Shutdown()
			continue
		}
		if current != phaseIdle && current != phaseResting && (current != phaseNew || now-c.since.Load() < firstRequest) {
			continue
		}
		// A request that has arrived is answered.
		if c.socket.Look() != socket.Arrived && c.phase.CompareAndSwap(current, phaseClosing) {
			_ = c.below.Close()
		}
	}
	return len(s.conns)
}
