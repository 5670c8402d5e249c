package http2

import (
	"errors"
	"slices"
)

// Window returns how many bytes of a body the other side takes now.
func (s *Stream) Window() int {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return int(max(min(s.sendWindow, s.c.sendWindow), 0))
}

// Send sends a header list: a head, with END_STREAM if end, or trailers, which need it. Of a server, it waits
// while so much waits to be sent that the connection is not read from either: no window bounds header lists.
// 100 Continue does not wait, because it is sent while another goroutine may send the answer.
func (s *Stream) Send(fields []Field, end bool) error {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := s.sendable(); err != nil {
		return err
	}
	if listSize(fields) > uint64(c.maxHeaderList) {
		return ErrHeadTooLarge
	}
	if !c.client && (len(c.out) > unreadLimit || len(c.heads) > 0) && !isContinue(fields) {
		if err := s.awaitHead(); err != nil {
			return err
		}
		defer c.nextHead()
	}
	c.sendHeaders(s, fields, end)
	s.stalled = 0
	return nil
}

func isContinue(fields []Field) bool { return len(fields) == 1 && fields[0].Value == "100" }

// awaitHead waits until the stream may send a header list. Both sides of a connection must not wait for
// room, so that of a client does not. The lock is held.
func (s *Stream) awaitHead() error {
	c := s.c
	c.heads = append(c.heads, s)
	err := s.sendable()
	for err == nil && (len(c.out) > unreadLimit || c.heads[0] != s) {
		s.awaitSending()
		err = s.sendable()
	}
	i := slices.Index(c.heads, s)
	if c.heads = slices.Delete(c.heads, i, i+1); len(c.heads) == 0 {
		c.heads = nil // an idle connection holds little
	}
	if err != nil {
		c.nextHead()
	}
	return err
}

// nextHead wakes the stream that has waited longest to send a header list, if there is room. The lock is
// held.
func (c *Conn) nextHead() {
	if len(c.heads) > 0 && len(c.out) <= unreadLimit {
		c.heads[0].wake()
	}
}

// Write sends a part of the body, and END_STREAM if end. It waits while the windows or what
// waits to be sent leave no room, and returns how many bytes were taken.
func (s *Stream) Write(p []byte, end bool) (n int, err error) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if err := s.sendable(); err != nil {
			c.leaveQueue(s)
			return n, err
		}
		room := min(int64(len(p)), maxFrame, s.sendWindow, c.sendWindow, int64(outLimit-len(c.out)))
		switch {
		case len(p) == 0:
			room = 0 // a window may be less than nothing
		case s.sendWindow <= 0:
			c.leaveQueue(s) // the others need not wait for this stream
			s.awaitSending()
			continue
		case room <= 0, !s.turn && len(c.waiting)+c.turns > 0:
			if c.queue(s); !s.turn {
				s.awaitSending()
			}
			continue
		}
		last := int(room) == len(p)
		c.sendData(s, p[:room], end && last)
		s.stalled = 0
		n += int(room)
		c.endTurn(s)
		if p = p[room:]; last {
			return n, nil
		}
	}
}

// awaitSending waits within Write or Send. The lock is held.
func (s *Stream) awaitSending() {
	s.waits = true
	s.cond.Wait()
	s.waits = false
}

// sendable returns the error of a stream on which nothing can be sent. The lock is held.
func (s *Stream) sendable() error {
	switch {
	case s.interrupted != nil:
		return s.interrupted
	case s.halted != nil:
		return s.halted
	case s.err != nil:
		return s.err
	case s.sendErr != nil:
		return s.sendErr
	case s.sentEnd:
		return errSentEnd
	}
	return nil
}

var errSentEnd = errors.New("http2: the stream was ended by this side")
