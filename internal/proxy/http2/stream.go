package http2

import (
	"errors"
	"slices"
	"sync"
	"time"
)

// Stream is one exchange on a connection. A server gets it with Config.Serve, a client
// opens it. One goroutine at a time sends, one reads; Interrupt may be called by any other
// until Close.
type Stream struct {
	// TooLarge means that the head of the request exceeds Config.MaxHead: it has no fields,
	// and the answer should be 431.
	TooLarge bool

	c    *Conn
	cond sync.Cond // for everything that the stream waits for; its lock is Conn.mu

	// Conn.mu guards the fields below.
	id          uint32        // 0 before Open
	since       time.Duration // Conn.age when a request opened it
	head        Head
	trailers    Head
	headed      bool   // the head is there
	information []Head // informational answers that were not returned yet
	informed    int
	bodyless    bool // the answer has no body, as for HEAD
	mayHaveBody bool
	receivedEnd bool
	sentEnd     bool
	err         error
	sendErr     error
	interrupted error // of everything
	cut         error // of reads
	halted      error // of writes
	connect     bool  // of a client: the request is a CONNECT
	onEnd       func()

	buf     []byte // buf[off:] has arrived and was not read; nil if nothing has
	pooled  *[]byte
	off     int
	arrived int64 // bytes of the body
	window  int64 // how much the other side may still send
	target  int64 // the size of that window
	extra   int64 // what it has grown by, if the connection and the process count that
	credit  int64 // read since the last WINDOW_UPDATE
	grown   int64 // arrived when the window last grew

	sendWindow int64
	queued     bool          // in Conn.waiting
	turn       bool          // may send one frame although others wait
	granted    bool          // has a slot
	waits      bool          // Write or Send waits
	stalled    time.Duration // how long it sends no byte
}

var streams = sync.Pool{New: func() any { return new(Stream) }}

func newStream(c *Conn) *Stream {
	s := streams.Get().(*Stream)
	s.c, s.cond.L = c, &c.mu
	s.head.reset()
	s.trailers.reset()
	return s
}

// free returns the stream for the next one. The lock is held, and nothing refers to it.
func (s *Stream) free() {
	s.dropBuffer()
	s.head.reset()
	s.trailers.reset()
	*s = Stream{head: s.head, trailers: s.trailers}
	streams.Put(s)
}

// NewStream returns a stream that Open opens. Only for clients.
func (c *Conn) NewStream() *Stream { return newStream(c) }

// Reserve returns a stream whose Open will not wait, nil if the other side allows no more
// streams now. Only for clients.
func (c *Conn) Reserve() *Stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unusable() != nil || c.active >= c.limit() || len(c.slots) > 0 {
		return nil
	}
	c.active++
	s := newStream(c)
	s.granted = true
	return s
}

// TakesConnect reports whether the other side has allowed extended CONNECT (RFC 8441). Only for
// clients.
func (s *Stream) TakesConnect() bool {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.c.connectProtocol
}

// Request returns the head of the request. It is valid until Close. Only for servers.
func (s *Stream) Request() *Head { return &s.head }

// Trailers returns the fields after the body, once Read has returned io.EOF. They are valid
// until Close.
func (s *Stream) Trailers() []Field { return s.trailers.Fields }

// OnEnd sets a function that is called when the stream ends before both sides have sent
// everything: it was reset, or the connection was lost. It must not block and not call the
// stream. It is called immediately if that has happened. With nil none is called from then on.
func (s *Stream) OnEnd(f func()) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.onEnd = f
	if f != nil && s.err != nil {
		f()
	}
}

// Open sends the head of a request, with END_STREAM if end. The fields begin with the
// pseudo-header fields. It waits while the other side allows no more streams. bodyless
// means that the answer has no body whatever length it states, as for HEAD. An error that wraps
// ErrUnprocessed means that nothing was sent.
func (s *Stream) Open(fields []Field, end, bodyless bool) error {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if size := listSize(fields); size > uint64(c.maxHeaderList) {
		return ErrHeadTooLarge
	}
	if err := s.takeSlot(); err != nil {
		return err
	}
	if c.opened == 0 {
		c.opened = 1
	} else {
		c.opened += 2
	}
	s.id, s.bodyless = c.opened, bodyless
	s.connect = len(fields) > 0 && fields[0].Value == "CONNECT"
	s.sendWindow, s.window, s.target = int64(c.streamWindow), int64(c.cfg.Window), int64(c.cfg.Window)
	c.streams[s.id] = s
	c.sendHeaders(s, fields, end)
	return nil
}

// ErrHeadTooLarge is the error of a head that exceeds what the other side accepts.
var ErrHeadTooLarge = errors.New("http2: the head is larger than what the other side accepts")

// listSize returns the size of a header list as RFC 9113 §6.5.2 counts it.
func listSize(fields []Field) (n uint64) {
	for i := range fields {
		n += uint64(fields[i].Size())
	}
	return n
}

// takeSlot waits until the stream may be opened. The lock is held.
func (s *Stream) takeSlot() error {
	c := s.c
	if err := c.unusable(); err != nil {
		return c.errorOf(s, err)
	}
	if s.interrupted != nil {
		return s.interrupted
	}
	if !s.granted && c.active < c.limit() && len(c.slots) == 0 {
		c.active++
		s.granted = true
	}
	if s.granted {
		return nil
	}
	c.slots = append(c.slots, s)
	for !s.granted {
		err := s.err
		if err == nil {
			err = s.interrupted
		}
		if err != nil {
			if i := slices.Index(c.slots, s); i >= 0 {
				c.slots = slices.Delete(c.slots, i, i+1)
			}
			return err
		}
		s.cond.Wait()
	}
	if err := c.unusable(); err != nil { // since the slot was granted
		return c.errorOf(s, err)
	}
	return nil
}

// grantSlots lets streams open that wait for a slot, or another caller reserve one. The lock is
// held.
func (c *Conn) grantSlots() {
	for len(c.slots) > 0 && c.active < c.limit() && c.unusable() == nil {
		s := c.slots[0]
		c.slots = slices.Delete(c.slots, 0, 1)
		c.active++
		s.granted = true
		s.wake()
	}
	c.cfg.Room()
}

// Answer waits for the next head of the answer: informational ones, then the final one. The
// final one is valid until Close.
func (s *Stream) Answer() (*Head, error) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	for {
		switch {
		case len(s.information) > 0:
			h := s.information[0]
			s.information = s.information[1:]
			return &h, nil
		case s.headed:
			return &s.head, nil
		case s.err != nil:
			return nil, s.err
		case s.interrupted != nil:
			return nil, s.interrupted
		}
		s.cond.Wait()
	}
}

// Interrupt ends what the stream waits for, now and later, with err. With nil the stream
// works again.
func (s *Stream) Interrupt(err error) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.interrupted = err
	s.wake()
}

// InterruptRead ends the reads, now and later, with err. With nil they work again.
func (s *Stream) InterruptRead(err error) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.cut = err
	s.wake()
}

// InterruptWrite ends the writes, now and later, with err. With nil they work again.
func (s *Stream) InterruptWrite(err error) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.halted = err
	s.wake()
}

const maxLingering = 100

// Linger waits until the other side has sent everything, for d at most and as long as its
// window lasts. Many clients take a reset for a failure although the whole answer was sent. Of a
// connection at most maxLingering streams wait, because each takes memory of which a client that is
// refused could use much.
func (s *Stream) Linger(d time.Duration) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	wanted := func() bool { return s.sentEnd && !s.receivedEnd && s.err == nil && s.window > 0 }
	if !wanted() || c.lingering >= maxLingering {
		return
	}
	c.lingering++
	defer func() { c.lingering-- }()
	over := false
	timer := time.AfterFunc(d, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		over = true
		s.wake()
	})
	defer timer.Stop()
	for !over && wanted() {
		s.cond.Wait()
	}
}

// Reset ends the stream with this code, unless both sides have sent everything.
func (s *Stream) Reset(code Code) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.abort(code)
}

// abort ends the stream unless it has ended. The answer to a request that a client cancels may be on the
// way: the cancellation pays for its head and its end. The lock is held.
func (s *Stream) abort(code Code) {
	if s.c.streams[s.id] == s {
		if s.c.client {
			s.c.earn(2)
		}
		s.reset(code, &ResetError{Code: code})
	}
}

// Close ends the use of the stream: if it was opened and has not ended, it is reset, a request whose answer
// was sent with NO_ERROR. Nothing may use the stream any more.
func (s *Stream) Close() {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	s.onEnd = nil
	if c.bounds() {
		c.giveBack(len(s.buf) - s.off)
	}
	s.shrink()
	switch {
	case c.client && s.id == 0:
		if s.granted && c.err == nil { // it was not opened
			c.active--
			c.grantSlots()
			c.endIfDone()
		}
	case c.client:
		s.abort(Cancel)
	case s.sentEnd:
		s.abort(NoError)
	default:
		s.abort(InternalError)
	}
	if !c.client {
		if c.active--; c.active == 0 {
			c.over.Broadcast()
		}
		c.endIfDone()
	}
	s.free()
}

// reset sends RST_STREAM and ends the stream. The lock is held.
func (s *Stream) reset(code Code, err error) {
	s.c.sendReset(s.id, code)
	s.end(err)
	s.leave()
}

// end records why the stream has ended early. The lock is held.
func (s *Stream) end(err error) {
	if s.err == nil {
		s.err = err
		if s.onEnd != nil {
			s.onEnd()
		}
	}
	s.wake()
}

// endReceiving records END_STREAM of the other side. The lock is held.
func (s *Stream) endReceiving() {
	s.receivedEnd = true
	if s.sentEnd {
		s.leave()
	}
}

// endSending records END_STREAM of this side. The lock is held.
func (s *Stream) endSending() {
	s.sentEnd = true
	if s.receivedEnd {
		s.leave()
	}
}

// leave ends what the connection has of the stream. The lock is held.
func (s *Stream) leave() {
	c := s.c
	if c.streams[s.id] != s {
		return
	}
	delete(c.streams, s.id)
	c.leaveQueue(s)
	if c.client {
		c.active--
		if s.receivedEnd && c.accepted < c.maxStreams {
			c.accepted++
		}
		c.grantSlots()
		c.endIfDone()
	}
}

// wake continues what waits on the stream. The lock is held.
func (s *Stream) wake() { s.cond.Broadcast() }
