//go:build linux || darwin

package socket_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/proxy/socket"
)

// connected returns both ends of a connection over loopback.
func connected(t testing.TB) (here, there net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if there, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if here, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = here.Close(), there.Close() })
	return here, there
}

// until looks until the sight is the wanted one.
func until(t *testing.T, s *socket.Socket, want socket.Sight) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); s.Look() != want; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the sight is %v, want %v", s.Look(), want)
		}
	}
}

func TestALookFindsBytesAndTheEndAndConsumesNothing(t *testing.T) {
	here, there := connected(t)
	var s socket.Socket
	s.Init(here)
	if got := s.Look(); got != socket.Quiet {
		t.Fatalf("a new connection: %v", got)
	}
	_, _ = there.Write([]byte("abc"))
	until(t, &s, socket.Arrived)
	buf := make([]byte, 3)
	if _, err := io.ReadFull(here, buf); err != nil || string(buf) != "abc" {
		t.Fatalf("%q, %v", buf, err)
	}
	if got := s.Look(); got != socket.Quiet {
		t.Fatalf("after the bytes: %v", got)
	}
	_ = there.Close()
	until(t, &s, socket.Gone)
	_ = here.Close()
	if got := s.Look(); got != socket.Gone {
		t.Fatalf("closed by this side: %v", got)
	}
}

func TestAReadHoldsNoBufferWhileItWaits(t *testing.T) {
	here, there := connected(t)
	var s socket.Socket
	s.Init(here)
	held, waits := 0, make(chan struct{}, 8)
	buf := make([]byte, 8)
	take := func() []byte { held++; return buf }
	drop := func() { held--; waits <- struct{}{} }
	type result struct {
		n   int
		err error
	}
	read := make(chan result)
	go func() {
		n, err, _ := s.Read(take, drop)
		read <- result{n, err}
	}()
	<-waits // the buffer was returned, and the read goes on
	_, _ = there.Write([]byte("xyz"))
	if r := <-read; r.n != 3 || r.err != nil || !bytes.Equal(buf[:3], []byte("xyz")) || held != 1 {
		t.Fatalf("%+v, %q, %d buffers", r, buf, held)
	}
	_ = there.Close()
	if n, err, ok := s.Read(take, drop); n != 0 || err != io.EOF || !ok {
		t.Fatalf("the end: %d, %v, %v", n, err, ok)
	}
}

func ExampleBelow() {
	a, _ := net.Pipe()
	fmt.Println(socket.Below(tls.Client(a, &tls.Config{})) == a)
	// Output: true
}
