package requestlog

import (
	"sync"
	"sync/atomic"
	"time"
)

// slowWindow is the time of which the slowest requests are kept: short enough that their
// lines come soon, long enough that they are few.
const slowWindow = 10 * time.Second

// slowest keeps the lines of the slowest requests of a window until it ends, because only
// then is it known which those are.
type slowest struct {
	// floor is the time of the fastest request that is kept, or -1 while there is room. A
	// request that is not slower than that costs one atomic load.
	floor atomic.Int64

	mu    sync.Mutex
	lines []slowLine // their buffers are used again in the next window
	ended bool       // no window ends any more
}

type slowLine struct {
	took time.Duration
	line []byte
}

// Slow returns how long a request was slow: until the answer of an endpoint began, so that
// long downloads, streams and tunnels do not take all places, or until its end without one.
func (r *Record) Slow() time.Duration {
	if r.FirstByte > 0 {
		return r.FirstByte
	}
	return r.Total
}

// Slowest reports whether a request of this duration is so far among the slowest of the
// window. It may be called for each request.
func (l *Log) Slowest(took time.Duration) bool {
	return l.Writes() && int64(took) > l.slowest.floor.Load()
}

// AddSlowest keeps a record until the window ends if it is among the most slowest ones of
// it; those are written then. It does not keep r.
func (l *Log) AddSlowest(r *Record, most int) {
	s, took := &l.slowest, r.Slow()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		l.enqueue(Append(nil, r)) // which counts it as dropped
		return
	}
	at := -1
	switch {
	case len(s.lines) >= most:
		if at = s.fastest(); at < 0 || took <= s.lines[at].took {
			return
		}
	case len(s.lines) < cap(s.lines):
		at = len(s.lines)
		s.lines = s.lines[:at+1]
	default:
		at = len(s.lines)
		s.lines = append(s.lines, slowLine{})
	}
	s.lines[at].took, s.lines[at].line = took, Append(s.lines[at].line[:0], r)
	if len(s.lines) >= most {
		s.floor.Store(int64(s.lines[s.fastest()].took))
	}
}

// fastest returns the place of the fastest request, -1 without one. mu is held.
func (s *slowest) fastest() int {
	at := -1
	for i := range s.lines {
		if at < 0 || s.lines[i].took < s.lines[at].took {
			at = i
		}
	}
	return at
}

// endWindow passes the lines of the window to the queue.
func (l *Log) endWindow() {
	s := &l.slowest
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.lines {
		l.enqueue(s.lines[i].line)
	}
	s.lines = s.lines[:0]
	s.floor.Store(-1)
}

// endSlowest ends the last window.
func (l *Log) endSlowest() {
	l.endWindow()
	l.slowest.mu.Lock()
	l.slowest.ended = true
	l.slowest.mu.Unlock()
}
