//go:build linux || darwin

package socket_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/proxy/socket"
)

// connected returns both ends of a connection over loopback.
func connected(t testing.TB) (here, there net.Conn) {
	t.Helper()
	there, here = procs.Connected(t)
	t.Cleanup(func() { _, _ = here.Close(), there.Close() })
	return here, there
}

// until checks until the state is the wanted one.
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
		n, err := s.Read(take, drop)
		read <- result{n, err}
	}()
	<-waits // the buffer was returned, and the read goes on
	_, _ = there.Write([]byte("xyz"))
	if r := <-read; r.n != 3 || r.err != nil || !bytes.Equal(buf[:3], []byte("xyz")) || held != 1 {
		t.Fatalf("%+v, %q, %d buffers", r, buf, held)
	}
	_ = there.Close()
	if n, err := s.Read(take, drop); n != 0 || err != io.EOF {
		t.Fatalf("the end: %d, %v", n, err)
	}
}

func TestAWriteDeliversEverythingToASlowReader(t *testing.T) {
	here, there := connected(t)
	var s socket.Socket
	s.Init(here)
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<18) // more than the buffers of the system
	read := make(chan []byte)
	go func() {
		var all []byte
		for buf := make([]byte, 64<<10); len(all) < len(sent); {
			n, err := there.Read(buf)
			if all = append(all, buf[:n]...); err != nil {
				break
			}
		}
		read <- all
	}()
	for _, piece := range [][]byte{sent[:0], sent[:100], sent[100 : 20<<10], sent[20<<10:]} {
		if n, err := s.Write(piece); n != len(piece) || err != nil {
			t.Fatal(n, err)
		}
	}
	if !bytes.Equal(<-read, sent) {
		t.Error("other bytes have arrived")
	}
	_ = here.SetWriteDeadline(time.Unix(1, 0))
	if n, err := s.Write(sent); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("after the deadline:", n, err)
	}
	_ = here.SetWriteDeadline(time.Time{})
	_ = here.Close()
	if n, err := s.Write(sent); n != 0 || !errors.Is(err, net.ErrClosed) {
		t.Error("after the close:", n, err)
	}
}

// asking is a connection that asks.
type asking struct {
	socket.Socket
	here, there net.Conn
	buf         [64]byte
	held        int
	waits       chan struct{}
}

func newAsking(t *testing.T) *asking {
	a := &asking{waits: make(chan struct{}, 8)}
	a.here, a.there = connected(t)
	a.Init(a.here)
	return a
}

func (a *asking) ask(question []byte) (sent, n int, err error) {
	return a.Ask(question, func() []byte { a.held++; return a.buf[:] }, func() { a.held--; a.waits <- struct{}{} })
}

func TestAnAskSendsAndThenReadsTheAnswerWithoutABufferMeanwhile(t *testing.T) {
	a := newAsking(t)
	for range 3 {
		go func() {
			question := make([]byte, 8)
			if _, err := io.ReadFull(a.there, question); err == nil {
				_, _ = a.there.Write([]byte("re: " + string(question)))
			}
		}()
		if sent, n, err := a.ask([]byte("question")); sent != 8 || err != nil || string(a.buf[:n]) != "re: question" {
			t.Fatalf("%d, %q, %v", sent, a.buf[:n], err)
		}
	}
	if a.held != 0 { // one for each answer, and drop is called for each question
		t.Errorf("%d buffers were held", a.held)
	}
	go func() {
		_, _ = io.ReadFull(a.there, make([]byte, 8))
		_ = a.there.Close()
	}()
	if sent, n, err := a.ask([]byte("question")); sent != 8 || n != 0 || err != io.EOF {
		t.Fatalf("the end in place of an answer: %d, %d, %v", sent, n, err)
	}
}

func TestAnAskSendsNothingWhereBytesOrTheEndHaveArrived(t *testing.T) {
	for name, arrives := range map[string]func(*asking){
		"bytes":   func(a *asking) { _, _ = a.there.Write([]byte("unasked")); until(t, &a.Socket, socket.Arrived) },
		"the end": func(a *asking) { _ = a.there.Close(); until(t, &a.Socket, socket.Gone) },
	} {
		a := newAsking(t)
		arrives(a)
		if sent, n, err := a.ask([]byte("question")); sent != 0 || n != 0 || err != socket.ErrNotQuiet {
			t.Errorf("%s: %d, %d, %v", name, sent, n, err)
		}
		_ = a.here.(*net.TCPConn).CloseWrite()
		if got, err := io.ReadAll(a.there); len(got) > 0 {
			t.Errorf("%s: %q was sent, %v", name, got, err)
		}
	}
}

func TestAnAskThatTheSocketCannotTakeWaitsForNoAnswer(t *testing.T) {
	a := newAsking(t)
	question := make([]byte, 16<<20)
	sent, n, err := a.ask(question)
	if sent <= 0 || sent >= len(question) || n != 0 || err != nil || a.held != 0 {
		t.Fatal(sent, n, err, a.held)
	}
	read := make(chan int64)
	go func() {
		got, _ := io.Copy(io.Discard, a.there)
		read <- got
	}()
	if _, err := a.Write(question[sent:]); err != nil {
		t.Fatal(err)
	}
	_ = a.here.Close()
	if got := <-read; got != int64(len(question)) {
		t.Errorf("%d bytes arrived of %d", got, len(question))
	}
	if sent, n, err := a.ask(question); sent != 0 || n != 0 || !errors.Is(err, net.ErrClosed) {
		t.Error("after the close:", sent, n, err)
	}
}

func TestADeadlineEndsAnAsk(t *testing.T) {
	a := newAsking(t)
	go func() {
		_, _ = io.ReadFull(a.there, make([]byte, 8)) // it was sent, and the ask waits
		_ = a.here.SetDeadline(time.Unix(1, 0))
	}()
	if sent, n, err := a.ask([]byte("question")); sent != 8 || n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(sent, n, err)
	}
	if sent, _, err := a.ask([]byte("question")); sent != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal("after the deadline:", sent, err)
	}
}

func ExampleBelow() {
	a, _ := net.Pipe()
	fmt.Println(socket.Below(tls.Client(a, &tls.Config{})) == a)
	// Output: true
}
