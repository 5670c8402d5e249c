//go:build linux || darwin

package downstream

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
)

// sight is what a look at a socket finds.
type sight uint8

const (
	quiet   sight = iota // nothing
	arrived              // bytes
	gone                 // the end of the connection
)

// socket looks at the socket of a connection without a waiting read. Its functions are
// bound once, to avoid an allocation per call.
type socket struct {
	raw     syscall.RawConn // nil if the connection has none
	peek    func(fd uintptr)
	receive func(fd uintptr) bool

	mu  sync.Mutex // one look at a time; guards the fields below
	buf [1]byte
	n   int
	err error

	// The state of read.
	take func() []byte // returns a buffer
	drop func()        // returns the buffer
	got  int
	fail error
}

func (s *socket) init(nc net.Conn, take func() []byte, drop func()) {
	conn, ok := nc.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return
	}
	s.raw, s.peek, s.receive, s.take, s.drop = raw, s.peekAt, s.receiveAt, take, drop
}

func (s *socket) peekAt(fd uintptr) {
	s.n, _, s.err = syscall.Recvfrom(int(fd), s.buf[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
}

// look finds out, without waiting and without consuming bytes, what a read would find.
func (s *socket) look() sight {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.raw == nil || s.raw.Control(s.peek) != nil:
		return quiet
	case s.err == syscall.EAGAIN || s.err == syscall.EINTR:
		return quiet
	case s.err != nil || s.n == 0:
		return gone
	}
	return arrived
}

func (s *socket) receiveAt(fd uintptr) bool {
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

// read waits for bytes and reads them into a buffer that it takes when they have arrived.
// It returns false if the connection cannot do that.
func (s *socket) read() (n int, err error, ok bool) {
	if s.raw == nil {
		return 0, nil, false
	}
	if err := s.raw.Read(s.receive); err != nil {
		return 0, err, true
	}
	return s.got, s.fail, true
}
