//go:build linux || darwin

package socket

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
)

// Socket looks at the socket of one connection. Its functions are bound once, to avoid an
// allocation per call. The zero value is a socket at which nothing can be seen.
type Socket struct {
	raw     syscall.RawConn // nil if the connection has none
	peek    func(fd uintptr)
	receive func(fd uintptr) bool

	mu  sync.Mutex // one look at a time; guards the fields below
	buf [1]byte
	n   int
	err error

	// The state of Read.
	take func() []byte
	drop func()
	got  int
	fail error
}

// Init prepares the socket of nc. A connection without a socket is possible.
func (s *Socket) Init(nc net.Conn) {
	conn, ok := nc.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return
	}
	s.raw, s.peek, s.receive = raw, s.peekAt, s.receiveAt
}

func (s *Socket) peekAt(fd uintptr) {
	s.n, _, s.err = syscall.Recvfrom(int(fd), s.buf[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
}

// Look finds out, without waiting and without consuming bytes, what a read would find.
func (s *Socket) Look() Sight {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.raw == nil:
		return Quiet
	case s.raw.Control(s.peek) != nil:
		return Gone
	case s.err == syscall.EAGAIN || s.err == syscall.EINTR:
		return Quiet
	case s.err != nil || s.n == 0:
		return Gone
	}
	return Arrived
}

func (s *Socket) receiveAt(fd uintptr) bool {
	buf := s.take()
	for {
		s.got, s.fail = syscall.Read(int(fd), buf)
		switch {
		case s.fail == syscall.EINTR:
			continue
		case s.fail == syscall.EAGAIN:
			s.drop() // no buffer is held while the connection waits
			return false
		case s.fail == nil && s.got == 0:
			s.fail = io.EOF
		case s.fail != nil:
			s.got, s.fail = 0, os.NewSyscallError("read", s.fail)
		}
		return true
	}
}

// Read waits for bytes and reads them into the buffer that take returns, which it asks for
// when bytes may have arrived. If there are none, drop gets the buffer back. Read returns
// false if the connection has no socket.
func (s *Socket) Read(take func() []byte, drop func()) (n int, err error, ok bool) {
	if s.raw == nil {
		return 0, nil, false
	}
	s.take, s.drop = take, drop
	if err := s.raw.Read(s.receive); err != nil {
		return 0, err, true
	}
	return s.got, s.fail, true
}
