package http2

import (
	"errors"
	"io"
	"os"
	"testing"
	"time"
)

func TestTheDeadlinesOfATunnelEndItsReadsAndWritesUntilTheyAreRemoved(t *testing.T) {
	resume := make(chan struct{})
	client, _ := pair(t, func(s *Stream) {
		defer s.Close()
		if s.Send([]Field{{Name: ":status", Value: "200"}}, false) != nil {
			return
		}
		<-resume // until then the window stays closed
		far := NewTunnel(s)
		defer far.End()
		n, err := io.Copy(io.Discard, far)
		if _, werr := far.Write([]byte("done")); n != 1<<20+4 || err != nil || werr != nil {
			t.Errorf("the service got %d bytes, %v, %v", n, err, werr)
		}
		_ = far.CloseWrite()
	})
	s := client.NewStream()
	defer s.Close()
	if err := s.Open(get("/"), false, false); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Answer(); err != nil {
		t.Fatal(err)
	}
	c := NewTunnel(s)
	defer c.End()
	limit := 10 * time.Millisecond
	_ = c.SetWriteDeadline(time.Now().Add(limit))
	n, err := c.Write(make([]byte, 1<<20))
	for n == 0 && errors.Is(err, os.ErrDeadlineExceeded) && limit < 10*time.Second { // the time was over before the write
		limit *= 2
		_ = c.SetWriteDeadline(time.Now().Add(limit))
		n, err = c.Write(make([]byte, 1<<20))
	}
	if n == 0 || n == 1<<20 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("a write without a window: %d, %v", n, err)
	}
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a read of nothing: %v", err)
	}
	_ = c.SetDeadline(time.Now().Add(-time.Second))
	if _, err := c.Write([]byte("late")); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a write when the time is over: %v", err)
	}
	_ = c.SetDeadline(time.Time{})
	close(resume)
	if _, err := c.Write(make([]byte, 1<<20-n)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("rest")); err != nil {
		t.Fatal(err)
	}
	_ = c.CloseWrite()
	if got, err := io.ReadAll(c); string(got) != "done" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// The memory of a stream serves for other streams when the tunnel has ended.
func TestADeadlineOfATunnelThatHasEndedEndsNothing(t *testing.T) {
	withServer(t, func(p *peer, s *Stream) {
		_ = s.Send(ok200, false)
		far := NewTunnel(s)
		_ = far.SetDeadline(time.Now().Add(time.Minute))
		far.End()
		time.Sleep(2 * time.Minute)
		if n, err := s.Read(make([]byte, 1)); n != 1 || err != nil {
			t.Errorf("a read after the deadline: %d, %v", n, err)
		}
		if n, err := s.Write([]byte("x"), true); n != 1 || err != nil {
			t.Errorf("a write after the deadline: %d, %v", n, err)
		}
	}, func(p *peer) {
		p.request(1, 0)
		p.data(1, 1)
		time.Sleep(3 * time.Minute)
		p.settle()
	})
}
