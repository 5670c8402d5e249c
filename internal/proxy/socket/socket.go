package socket

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
)

// Sight is the result of a check of a socket.
type Sight uint8

// The sights.
const (
	Quiet   Sight = iota // nothing
	Arrived              // bytes
	Gone                 // the end of the connection
)

// ErrNotQuiet is the error of an Ask that has sent nothing, because of what has arrived.
var ErrNotQuiet = errors.New("the connection has ended, or has bytes that were not asked for")

// Below returns the connection of the socket below TLS and what is put around it.
func Below(nc net.Conn) net.Conn {
	for {
		around, ok := nc.(interface{ NetConn() net.Conn })
		if !ok {
			return nc
		}
		nc = around.NetConn()
	}
}

// Reset closes a connection so that its other end gets an error and no end of the data.
func Reset(nc net.Conn) {
	if below, ok := Below(nc).(*net.TCPConn); ok {
		_ = below.SetLinger(0)
		_ = below.Close() // before TLS could announce an orderly end
	}
	_ = nc.Close()
}

// Unsent returns how many bytes the system holds that the other end has not acknowledged. It is 0 where
// that is not known, as everywhere but on Linux.
func Unsent(nc net.Conn) (n int) {
	conn, ok := Below(nc).(syscall.Conn)
	if !ok {
		return 0
	}
	if raw, err := conn.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { n = unsent(fd) }) // nothing is left of a connection that was closed
	}
	return n
}

// Socket works on the socket of one connection. Its functions are bound once, to avoid an
// allocation per call. The zero value is a connection without a socket.
type Socket struct {
	raw     syscall.RawConn // nil if the connection has none
	look    func(fd uintptr)
	ack     func(fd uintptr)
	receive func(fd uintptr) bool
	send    func(fd uintptr) bool
	both    func(fd uintptr) bool

	mu    sync.Mutex // one Look at a time; guards sight
	sight Sight

	// The state of Read and Ask.
	take func() []byte
	drop func()
	got  int
	fail error

	// The state of Write and Ask.
	out   []byte // not sent yet
	wrong error
}

// Init prepares the socket of nc. A connection without a socket is possible.
func (s *Socket) Init(nc net.Conn) {
	conn, ok := nc.(syscall.Conn)
	if !ok || !supported {
		return
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return
	}
	s.raw, s.look, s.ack, s.receive, s.send, s.both = raw, s.lookAt, acknowledge, s.receiveAt, s.sendAt, s.askAt
}

// Usable reports whether the connection has a socket.
func (s *Socket) Usable() bool { return s.raw != nil }

// Look finds out, without waiting and without consuming bytes, what a read would find.
func (s *Socket) Look() Sight {
	if s.raw == nil {
		return Quiet
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.raw.Control(s.look) != nil {
		return Gone
	}
	return s.sight
}

// Acknowledge acknowledges what has arrived now, and not with the next bytes that are sent or
// after the 40 ms that Linux waits for such. The other end may hold bytes back until then.
// Elsewhere it does nothing.
func (s *Socket) Acknowledge() {
	if s.raw != nil {
		_ = s.raw.Control(s.ack) // a connection that was closed is found by the next Look
	}
}

func (s *Socket) lookAt(fd uintptr) { s.sight = sightOf(fd) }

func sightOf(fd uintptr) Sight {
	switch n, err := peek(fd); {
	case err == syscall.EAGAIN || err == syscall.EINTR:
		return Quiet
	case err != 0 || n == 0:
		return Gone
	}
	return Arrived
}

// Read waits for bytes and reads them into the buffer that take returns, which it asks for
// when bytes may have arrived. If there are none, drop gets the buffer back. The connection
// must have a socket.
func (s *Socket) Read(take func() []byte, drop func()) (n int, err error) {
	s.take, s.drop = take, drop
	if err := s.raw.Read(s.receive); err != nil {
		return 0, err
	}
	return s.got, s.fail
}

func (s *Socket) receiveAt(fd uintptr) bool {
	buf := s.take()
	for {
		n, err := read(fd, buf)
		switch err {
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
			s.drop() // no buffer is held while the connection waits
			return false
		case 0:
			if s.got, s.fail = n, nil; n == 0 {
				s.fail = io.EOF
			}
		default:
			s.got, s.fail = 0, os.NewSyscallError("read", err)
		}
		return true
	}
}

// Write writes all of b, as the Write of a net.Conn. The connection must have a socket.
func (s *Socket) Write(b []byte) (n int, err error) {
	s.out, s.wrong = b, nil
	err = s.raw.Write(s.send)
	if err == nil {
		err = s.wrong
	}
	n = len(b) - len(s.out)
	s.out = nil
	return n, err
}

// sendAt writes what is left of out. It returns false if the socket is full.
func (s *Socket) sendAt(fd uintptr) bool {
	for len(s.out) > 0 {
		n, err := write(fd, s.out)
		switch err {
		case 0:
			s.out = s.out[n:]
		case syscall.EINTR:
		case syscall.EAGAIN:
			return false
		default:
			s.wrong = os.NewSyscallError("write", err)
			return true
		}
	}
	return true
}

// Ask writes b and then waits for bytes as Read does, all in one operation. Once b was sent,
// drop is called: the memory of b is not used any more either. Ask first looks: unless the
// socket is quiet, it sends nothing and returns ErrNotQuiet. If b does not fit into
// the socket, or the write fails, Ask does not wait: n is 0, and sent less than the length of b.
// Nothing else may write meanwhile, and the write has the time limits of a read. The
// connection must have a socket.
func (s *Socket) Ask(b []byte, take func() []byte, drop func()) (sent, n int, err error) {
	s.out, s.wrong = b, nil
	s.take, s.drop, s.got, s.fail = take, drop, 0, nil
	err = s.raw.Read(s.both)
	sent = len(b) - len(s.out)
	s.out = nil
	switch {
	case s.wrong != nil:
		return sent, 0, s.wrong
	case err != nil:
		return sent, 0, err
	}
	return sent, s.got, s.fail
}

// askAt sends first, and receives once everything was sent. The look comes after the runtime
// has begun to note arrivals for this operation, so that none is missed.
func (s *Socket) askAt(fd uintptr) bool {
	if len(s.out) == 0 {
		return s.receiveAt(fd)
	}
	if sightOf(fd) != Quiet {
		s.wrong = ErrNotQuiet
		return true
	}
	if !s.sendAt(fd) || s.wrong != nil {
		return true
	}
	s.out = nil
	s.drop()
	return false
}

// known returns the result of a call of package syscall.
func known(n int, err error) (int, syscall.Errno) {
	errno, _ := err.(syscall.Errno) // these calls return no others
	return n, errno
}
