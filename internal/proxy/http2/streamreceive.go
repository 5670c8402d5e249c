package http2

import (
	"io"
	"sync"
	"sync/atomic"
)

// Read reads from the body that the other side sends, and waits for at least one byte.
// It returns io.EOF at the end.
func (s *Stream) Read(p []byte) (int, error) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if err := s.awaitBody(len(p) > 0); err != nil {
		return 0, err
	}
	return s.read(p), nil
}

// ReadLate reads as Read does, into the buffer that take returns. It asks for that when bytes are
// there, so that many streams without any need no buffer. take must not block.
func (s *Stream) ReadLate(take func() []byte) ([]byte, error) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if err := s.awaitBody(true); err != nil {
		return nil, err
	}
	p := take()
	return p[:s.read(p)], nil
}

// awaitBody returns nil when bytes of the body are there, or immediately unless it waits. The lock is
// held.
func (s *Stream) awaitBody(waits bool) error {
	for {
		switch {
		case s.interrupted != nil:
			return s.interrupted
		case s.cut != nil:
			return s.cut
		case s.off < len(s.buf):
			return nil
		case s.receivedEnd:
			return io.EOF
		case s.err != nil:
			return s.err
		case !waits:
			return nil
		}
		s.cond.Wait()
	}
}

// read takes what is there of the body. The lock is held.
func (s *Stream) read(p []byte) int {
	n := copy(p, s.buf[s.off:])
	if s.off += n; s.off == len(s.buf) {
		s.dropBuffer()
	}
	s.consumed(n)
	return n
}

// Buffered returns how many bytes Read returns without waiting, and whether the end of the
// body is behind them.
func (s *Stream) Buffered() (n int, end bool) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return len(s.buf) - s.off, s.receivedEnd
}

// received adds a part of the body, and padding. The lock is held.
func (s *Stream) received(padding int, data []byte) {
	s.credit += int64(padding)
	if s.pooled == nil && len(data) > 0 {
		s.pooled = bodyBuffers.Get().(*[]byte)
		s.buf = (*s.pooled)[:0]
	}
	if s.off > 0 && len(s.buf)+len(data) > cap(s.buf) {
		n := copy(s.buf, s.buf[s.off:])
		s.buf, s.off = s.buf[:n], 0
	}
	s.buf = append(s.buf, data...)
}

// bounds reports whether the window of the connection bounds what is held of all bodies: then it is
// given back when they are read, otherwise when they arrive, so that one which is not read holds up no
// other, and the windows of the streams bound what is held.
func (c *Conn) bounds() bool { return !c.client && !c.cfg.Shared }

// Windows that have grown are filled by streams that read no more. These bounds are beyond Config.Window
// of each stream, for the streams of one connection and of all connections of the process. A window takes
// at most half of what is left, so that streams which stay open leave some to those that come.
const (
	maxGrown    = 8 << 20
	maxGrownAll = 64 << 20
)

var grownAll atomic.Int64

// grow doubles the window of a stream whose transfer has used it up twice, up to Config.MaxWindow. It
// returns by how much. The lock is held.
func (s *Stream) grow() int64 {
	c := s.c
	more := min(s.target, int64(c.cfg.MaxWindow)-s.target)
	if more <= 0 || s.arrived-s.grown < 2*s.target {
		return 0
	}
	if !c.bounds() {
		more = min(more, (maxGrown-c.grown)/2, (maxGrownAll-grownAll.Load())/2)
		if more < maxFrame {
			return 0
		}
		grownAll.Add(more) // other connections may do this at the same time: the bound is approximate
		c.grown += more
		s.extra += more
	}
	s.target += more
	s.grown = s.arrived
	return more
}

// shrink gives back what the window has grown by, when nothing uses the stream any more. The lock is held.
func (s *Stream) shrink() {
	s.c.grown -= s.extra
	grownAll.Add(-s.extra)
	s.extra = 0
}

// consumed lets the other side send more after n bytes were read. The lock is held.
func (s *Stream) consumed(n int) {
	c := s.c
	if c.bounds() {
		c.giveBack(n)
	}
	s.credit += int64(n)
	if s.receivedEnd || s.err != nil || s.credit < s.target/2 {
		return
	}
	more := s.credit + s.grow()
	s.credit = 0
	s.window += more
	c.takeOut()
	c.out = appendWindowUpdate(c.out, s.id, uint32(more))
	c.kick()
}

// giveBack lets the other side send n bytes more on the connection: in large steps, unless streams that
// are not read hold so much that it could send less than that. The lock is held.
func (c *Conn) giveBack(n int) {
	c.credit += int64(n)
	if c.credit < c.window/2 && c.credit < c.received || c.credit == 0 || c.err != nil {
		return
	}
	c.received += c.credit
	c.takeOut()
	c.out = appendWindowUpdate(c.out, 0, uint32(c.credit))
	c.credit = 0
	c.kick()
}

// keptBuffer is the largest buffer that is returned to the pool.
const keptBuffer = 64 << 10

// bodyBuffers are for bodies that have arrived and were not read. A stream has one only while it has
// such bytes: thousands of streams may be open on which nothing moves.
var bodyBuffers = sync.Pool{New: func() any { b := make([]byte, 0, 1<<10); return &b }}

// dropBuffer returns the buffer, of which everything was read or nothing is needed. The lock is held.
func (s *Stream) dropBuffer() {
	if s.pooled != nil && cap(s.buf) <= keptBuffer {
		*s.pooled = s.buf[:0]
		bodyBuffers.Put(s.pooled)
	}
	s.buf, s.pooled, s.off = nil, nil, 0
}
