package http2

import (
	"net"
	"syscall"
	"testing"
	"time"
)

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
