//go:build linux || darwin

package relay

import (
	"errors"
	"net"
	"syscall"
	"testing"
)

// The ingress of a relay that is not ready holds its address without listening.
func TestAnAddressThatAnotherProcessHoldsIsTakenBeforeItListens(t *testing.T) {
	held, _, err := bind(anyPort)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if second, _, err := bind(held.Addr().String()); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a second one: %v, %v", second, err)
	}
}

// A side that closes first keeps its connection for a minute.
func TestConnectionsThatHaveEndedKeepNoProcessFromTheirAddress(t *testing.T) {
	addr := anyPort
	for range 3 { // the connections of the second one are those of a process that was restarted
		l, listen, err := bind(addr)
		if err != nil {
			t.Fatal(err)
		}
		addr = l.Addr().String()
		if err := listen(); err != nil {
			t.Fatal(err)
		}
		client, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
		_, _ = client.Read(make([]byte, 1)) // the end
		_, _ = client.Close(), l.Close()
	}
}
