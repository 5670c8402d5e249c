package relay

import (
	"net"
	"testing"

	"github.com/ringway/ringway/internal/procs"
)

// The kernel resets what waits when the listener is closed, so a stop has to know.
func TestAConnectionThatWaitsToBeAcceptedIsSeen(t *testing.T) {
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if hasPending(l) {
		t.Fatal("a connection waits at a new listener")
	}
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	procs.Await(t, "the connection waits", func() bool { return hasPending(l) })
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	if hasPending(l) {
		t.Error("a connection that was accepted still waits")
	}
}
