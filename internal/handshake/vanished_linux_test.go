package handshake

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/procs"
)

func TestAReaderThatWaitsOwesAndIsNotSilent(t *testing.T) {
	listener := procs.Listen(t)
	client, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	raw := rawOf(&PendingConn{Conn: server})
	if raw == nil {
		t.Fatal("no socket")
	}
	if owed, _, err := readDebt(raw); owed || err != nil {
		t.Fatalf("owes %t before anything was sent: %v", owed, err)
	}
	_ = server.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	for err == nil { // until the window is closed
		_, err = server.Write(make([]byte, 1<<20))
	}
	if owed, silent, err := readDebt(raw); !owed || silent > procs.Patience || err != nil {
		t.Errorf("owes %t, silent for %v: %v", owed, silent, err)
	}
	go func() { _, _ = io.Copy(io.Discard, client) }()
	procs.Await(t, "all is acknowledged", func() bool {
		owed, _, err := readDebt(raw)
		return !owed && err == nil
	})
	_ = server.Close()
	if _, _, err := readDebt(raw); err == nil {
		t.Error("a closed connection has a debt")
	}
}
