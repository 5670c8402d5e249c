package upstream

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/proxy/socket"
)

// What has arrived while the process was paused is read before a head is late.
func TestAHeadIsNotLateInTheRoundAfterAPause(t *testing.T) {
	near, far := net.Pipe()
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	g := &progress{c: &conn{Conn: near, ctx: t.Context()}, x: &Options{Deadline: time.Now().Add(-time.Second)}}
	g.head.Store(headDue)
	p := &Pool{watched: []*progress{g}, checked: time.Now().Add(-time.Second)}
	p.watch = time.AfterFunc(time.Hour, func() {})
	t.Cleanup(func() { p.watch.Stop() })
	if p.watchRound(); g.head.Load() != headDue {
		t.Error("the head is late in this round")
	}
	if p.watchRound(); g.head.Load() != headLate {
		t.Error("the head is not late in the next one")
	}
}

// A connection that was opened while the process was paused ends the wait for it.
func TestAWaitEndsNotInTheRoundAfterAPauseUnlessItsClientHasLeft(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	leave()
	left := &waiter{ctx: ctx, queued: true, ready: make(chan struct{})}
	late := &waiter{ctx: t.Context(), deadline: time.Now().Add(-time.Second), queued: true, ready: make(chan struct{})}
	p := &Pool{waiting: []*waiter{left, late}, checked: time.Now().Add(-time.Second), cfg: Config{Activity: new(Activity)}}
	p.watch = time.AfterFunc(time.Hour, func() {})
	t.Cleanup(func() { p.watch.Stop() })
	if p.watchRound(); !left.gaveUp || late.gaveUp {
		t.Errorf("given up in this round: by a client that has left %v, for the deadline %v", left.gaveUp, late.gaveUp)
	}
	if p.watchRound(); !late.gaveUp {
		t.Error("not given up in the next one")
	}
}

// The watch may find a head late just when it arrives.
func TestAHeadThatArrivesAsTheWatchFindsItLateIsNoFailure(t *testing.T) {
	here, there := net.Pipe()
	defer there.Close()
	p, x := new(Pool), Options{Deadline: time.Unix(1, 0)}
	g, c := new(progress), newConn(here)
	defer c.Close()
	g.begin(nil, &x)
	g.c = c
	if g.check(0, false); g.head.Load() != headFree {
		t.Fatal("an exchange that does not wait for a head was ended")
	}
	g.head.Store(headDue)
	g.check(0, false)
	if _, err := c.Read(c.one[:]); g.head.Load() != headLate || err == nil {
		t.Fatal("a late head was not ended:", err)
	}
	p.headArrived(g)
	go func() { _, _ = there.Write([]byte("x")) }()
	if n, err := c.Read(c.one[:]); n != 1 || g.head.Load() != headFree {
		t.Error("the body cannot be read after a head that was found late:", err)
	}
}

// ended counts the deadlines that end reads and writes of a connection.
type ended struct {
	net.Conn
	n atomic.Int64
}

func (e *ended) SetDeadline(t time.Time) error {
	if t.Equal(expiredDeadline) {
		e.n.Add(1)
	}
	return nil
}

// The watch checks an exchange while its head arrives, with an hour left. A connection that it
// ended then would fail the next request on it.
func TestTheWatchEndsNoConnectionWhoseHeadArrivesInTime(t *testing.T) {
	p, x, c := new(Pool), Options{Deadline: time.Now().Add(time.Hour)}, new(ended)
	g := new(progress)
	g.begin(nil, &x)
	g.c = &conn{Conn: c}
	var done atomic.Bool
	var looking sync.WaitGroup
	looking.Go(func() {
		for !done.Load() {
			p.mu.Lock()
			g.check(0, false)
			p.mu.Unlock()
		}
	})
	for range 2_000_000 {
		g.head.Store(headDue)
		p.headArrived(g)
	}
	done.Store(true)
	looking.Wait()
	if n := c.n.Load(); n > 0 {
		t.Errorf("%d of 2,000,000 connections were ended although their heads had arrived", n)
	}
}

// BenchmarkLook measures what a request pays for the check of the idle connection that
// it is about to use: a system call, and over TLS a read that does not reach the
// socket as well.
func BenchmarkLook(b *testing.B) {
	for _, name := range []string{"plain", "TLS"} {
		b.Run(name, func(b *testing.B) {
			server := httptest.NewUnstartedServer(nil)
			dial := func(addr string) (net.Conn, error) { return net.Dial("tcp", addr) }
			if name == "TLS" {
				server.StartTLS()
				dial = func(addr string) (net.Conn, error) {
					return tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true})
				}
			} else {
				server.Start()
			}
			defer server.Close()
			nc, err := dial(server.Listener.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			// An answer, so that no session ticket is on the way any more.
			if _, err := io.WriteString(nc, "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
				b.Fatal(err)
			}
			if _, err := nc.Read(make([]byte, 4096)); err != nil {
				b.Fatal(err)
			}
			c := newConn(nc)
			defer c.Close()
			c.used = true
			b.ReportAllocs()
			for b.Loop() {
				if c.look() != socket.Quiet {
					b.Fatal("the connection is over")
				}
			}
		})
	}
}
