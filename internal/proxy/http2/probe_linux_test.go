package http2

import (
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/proxy/socket"
)

// While the system repeats what was sent it does not probe, and two PINGs have asked already.
func TestAServerThatAcknowledgesNothingIsAskedHoweverManyPINGsItHasAnswered(t *testing.T) {
	few := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4<<10) }) // seen below
	}}
	listener, err := few.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	stuck := make(chan net.Conn, 1)
	go func() {
		server, err := listener.Accept()
		if err != nil {
			return
		}
		_, _ = server.Write(frame{0, frameSettings, 0, 0}.append(nil))
		stuck <- server // it reads nothing
	}()
	nc, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c := NewClient(nc, small)
	ran := make(chan error, 1)
	go func() { ran <- c.Run() }()
	<-c.Ready()
	defer func() { _ = (<-stuck).Close() }()
	s := c.NewStream()
	if err := s.Open(get("/"), false, false); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Write(make([]byte, 48<<10), false); err != nil {
		t.Fatal(n, err)
	}
	procs.Await(t, "bytes that are not acknowledged", func() bool { return socket.Unsent(nc) > 16<<10 })
	c.mu.Lock()
	c.pings, c.asked = 2, c.opened
	c.mu.Unlock()
	c.heard.Store(false)
	c.Check(pingAfter)
	c.Check(pingTimeout + time.Millisecond)
	if err := c.Err(); err != errSilent {
		t.Error(err)
	}
	s.Close()
	_ = c.Close()
	<-ran
}

// A PING would ask again and again, which servers of gRPC do not allow.
func TestTheSystemFindsOutThatTheHostOfAServerHasVanished(t *testing.T) {
	nc := listening(t, small, nil, func(s *Stream) { s.Close() })
	c := NewClient(nc, small)
	defer c.Close()
	raw, err := nc.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	value := func(option int) (n int) {
		t.Helper()
		if cerr := raw.Control(func(fd uintptr) { n, err = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, option) }); cerr != nil || err != nil {
			t.Fatal(cerr, err)
		}
		return n
	}
	found := time.Duration(value(syscall.TCP_KEEPIDLE)+value(syscall.TCP_KEEPINTVL)*value(syscall.TCP_KEEPCNT)) * time.Second
	if found != pingAfter+pingTimeout {
		t.Errorf("a host that vanishes is found after %v, want %v", found, pingAfter+pingTimeout)
	}
}
