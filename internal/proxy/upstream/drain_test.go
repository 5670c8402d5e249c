package upstream

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// overPipe is a client's connection in memory, which can be taken over.
type overPipe struct {
	*httptest.ResponseRecorder
	net.Conn
}

func (c overPipe) Write(b []byte) (int, error)      { return c.ResponseRecorder.Write(b) }
func (c overPipe) SetDeadline(time.Time) error      { return nil }
func (c overPipe) SetReadDeadline(time.Time) error  { return nil }
func (c overPipe) SetWriteDeadline(time.Time) error { return nil }

func (c overPipe) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return c.Conn, bufio.NewReadWriter(bufio.NewReader(c.Conn), bufio.NewWriter(c.Conn)), nil
}

// inMemory is a pool of an endpoint that switches protocols where that is asked for, begins an
// answer to a POST, and answers nothing else.
func inMemory(t *testing.T, sessions *Sessions) *Pool {
	t.Helper()
	p, err := NewPool(Config{Address: "service:80", Sessions: sessions, Dial: func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		go func() {
			switch r, err := http.ReadRequest(bufio.NewReader(far)); {
			case err != nil:
			case r.Header.Get("Upgrade") != "":
				_, _ = io.WriteString(far, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
			case r.Method == http.MethodPost:
				_, _ = io.WriteString(far, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nbegun")
			}
			_, _ = io.Copy(io.Discard, far)
			_ = far.Close()
		}()
		return near, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// webSocket opens one through the pool and returns the client's end.
func webSocket(p *Pool, running *sync.WaitGroup) net.Conn {
	near, far := net.Pipe()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "websocket")
	running.Go(func() { _, _ = p.Carry(overPipe{httptest.NewRecorder(), near}, r, &Options{}) })
	return far
}

func TestADrainEndsRequestsWithTheirTimeAndSessionsEvenlyOverTheRestOfTheirs(t *testing.T) {
	for name, c := range map[string]struct {
		requests, sessions time.Duration
		want               []time.Duration // the ends of four sessions
		forgotten          bool            // the service is not known any more
	}{
		"a request alone":    {requests: 30 * time.Second, sessions: 5 * time.Minute},
		"one, forgotten":     {requests: 30 * time.Second, sessions: 5 * time.Minute, forgotten: true},
		"over the rest":      {30 * time.Second, 5 * time.Minute, []time.Duration{97500 * time.Millisecond, 165 * time.Second, 232500 * time.Millisecond, 300 * time.Second}, false},
		"a shorter time":     {30 * time.Second, 34 * time.Second, []time.Duration{31 * time.Second, 32 * time.Second, 33 * time.Second, 34 * time.Second}, false},
		"with the requests":  {30 * time.Second, 30 * time.Second, []time.Duration{30 * time.Second, 30 * time.Second, 30 * time.Second, 30 * time.Second}, false},
		"no time of its own": {30 * time.Second, 0, []time.Duration{30 * time.Second, 30 * time.Second, 30 * time.Second, 30 * time.Second}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sessions := &Sessions{}
				pool := inMemory(t, sessions)
				var running sync.WaitGroup
				began, ends := time.Now(), make(chan time.Duration, len(c.want))
				for range c.want {
					client := webSocket(pool, &running)
					running.Go(func() {
						all, _ := io.ReadAll(client)
						if !strings.HasSuffix(string(all), "\r\n\r\n"+string(goingAway)) {
							t.Errorf("a client got %q", all)
						}
						ends <- time.Since(began)
					})
				}
				running.Go(func() {
					_, err := pool.Carry(overPipe{ResponseRecorder: httptest.NewRecorder()}, httptest.NewRequest(http.MethodGet, "/", nil), &Options{})
					if after := time.Since(began); !errors.Is(err, ErrStopped) || after.Truncate(sessionTick) != c.requests {
						t.Errorf("the request ended after %v: %v", after, err)
					}
				})
				synctest.Wait()

				ended, calls := 0, 0
				left, err := sessions.Drain(t.Context(), Drain{
					Requests: c.requests, Sessions: c.sessions,
					Shutdown: func(context.Context) error { calls++; return nil },
					InFlight: func() int64 {
						if c.forgotten {
							return 0
						}
						return int64(pool.Stats().InFlight)
					},
					Ended:  func(n int) { ended += n },
					Logger: slog.New(slog.DiscardHandler),
				})
				if left != 0 || err != nil || ended != len(c.want) || calls != 2 {
					t.Errorf("%d are left, %v; %d were ended, Shutdown was called %d times", left, err, ended, calls)
				}
				for i, want := range c.want {
					if got := <-ends; got < want || got > want+2*sessionTick {
						t.Errorf("session %d ended after %v, want %v", i+1, got, want)
					}
				}
				pool.Close()
				running.Wait()
			})
		})
	}
}

// deaf is a client that reads nothing for some time.
type deaf struct {
	*httptest.ResponseRecorder
	reads <-chan struct{}
	cut   chan struct{}
}

func (d deaf) Write(b []byte) (int, error) {
	select {
	case <-d.reads:
		return d.ResponseRecorder.Write(b)
	case <-d.cut:
		return 0, os.ErrDeadlineExceeded
	}
}

func (d deaf) SetWriteDeadline(time.Time) error {
	select {
	case <-d.cut:
	default:
		close(d.cut)
	}
	return nil
}

// What was read of an answer is written, so that the handler can end it in order.
func TestTheEndOfASessionLetsAWriteToTheClientEndWithinASecond(t *testing.T) {
	for _, late := range []time.Duration{closeGrace / 2, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			sessions := &Sessions{}
			pool := inMemory(t, sessions)
			var running sync.WaitGroup
			reads := make(chan struct{})
			client := deaf{httptest.NewRecorder(), reads, make(chan struct{})}
			var ended time.Time
			running.Go(func() {
				_, err := pool.Carry(client, httptest.NewRequest(http.MethodPost, "/", nil), &Options{})
				if ended = time.Now(); !errors.Is(err, ErrStopped) {
					t.Error(err)
				}
			})
			synctest.Wait()
			began := time.Now()
			reading := time.AfterFunc(late, func() { close(reads) })
			if n := sessions.End(1); n != 1 {
				t.Errorf("%d sessions have ended", n)
			}
			running.Wait()
			whole := client.Body.String() == "begun"
			if after := ended.Sub(began); whole != (late < closeGrace) || after > closeGrace+sessionTick || after < min(late, closeGrace) {
				t.Errorf("a client that reads after %v got %q by %v", late, client.Body, after)
			}
			reading.Stop()
			pool.Close()
		})
	}
}

func TestADrainEndsWithTheLastSessionOrWithItsContext(t *testing.T) {
	for name, c := range map[string]struct {
		closes, gives time.Duration
		left          int64
		forgotten     bool // its service is not known any more
	}{
		"the last session closes":   {closes: time.Minute, gives: time.Hour},
		"the last one, forgotten":   {closes: time.Minute, gives: time.Hour, forgotten: true},
		"its context, of requests":  {closes: time.Hour, gives: time.Second, left: 1},
		"its context, of a session": {closes: time.Hour, gives: time.Minute, left: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sessions := &Sessions{}
				pool := inMemory(t, sessions)
				var running sync.WaitGroup
				began, client := time.Now(), webSocket(pool, &running)
				running.Go(func() { _, _ = io.Copy(io.Discard, client) })
				synctest.Wait()
				time.AfterFunc(c.closes, func() { _ = client.Close() })
				ctx, cancel := context.WithTimeout(t.Context(), c.gives)
				defer cancel()
				left, err := sessions.Drain(ctx, Drain{
					Requests: 30 * time.Second, Sessions: 3 * time.Hour,
					Shutdown: func(context.Context) error { return nil },
					InFlight: func() int64 {
						if c.forgotten {
							return 0
						}
						return int64(pool.Stats().InFlight)
					},
					Ended:  func(int) { t.Error("a session was ended") },
					Logger: slog.New(slog.DiscardHandler),
				})
				if after := time.Since(began); left != c.left || err != nil || after > min(c.closes, c.gives)+2*sessionTick || after < min(c.closes, c.gives) {
					t.Errorf("%d left after %v, %v", left, after, err)
				}
				running.Wait()
				pool.Close()
			})
		})
	}
}

func TestSessionsAreSpreadEvenly(t *testing.T) {
	for _, c := range []struct {
		all   int
		share float64
		want  int
	}{{1, 1, 1}, {1, 0.01, 1}, {1, 0, 0}, {1, -0.2, 0}, {4, 1.1, 4}, {4, 0.76, 4}, {4, 0.75, 3}, {4, 0.25, 1}, {100_000, 0.5, 50_000}} {
		if got := sessionsLeft(c.all, c.share); got != c.want {
			t.Errorf("of %d with %v of the time left: %d, want %d", c.all, c.share, got, c.want)
		}
	}
}

// A read that runs out of time within a frame is repeated only while Sessions ends the tunnel.
func TestAWebSocketThatIsSilentWithinAFrameEndsAfterTheProgressTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const silence = time.Minute
		p, err := NewPool(Config{Address: "service:80", Sessions: &Sessions{}, Dial: func(context.Context, string, string) (net.Conn, error) {
			near, far := net.Pipe()
			go func() {
				if _, err := http.ReadRequest(bufio.NewReader(far)); err == nil {
					_, _ = io.WriteString(far, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\x81\x05h")
				}
				_, _ = io.Copy(io.Discard, far)
				_ = far.Close()
			}()
			return near, nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		near, far := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, far) }()
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Connection", "Upgrade")
		r.Header.Set("Upgrade", "websocket")
		began, ended := time.Now(), make(chan Result, 1)
		go func() {
			res, _ := p.Carry(overPipe{httptest.NewRecorder(), near}, r, &Options{Progress: silence})
			ended <- res
		}()
		select {
		case res := <-ended:
			if after := time.Since(began); res.Silent != SilentBoth || after < silence || after > 2*silence {
				t.Errorf("ended after %v, silent: %v", after, res.Silent)
			}
		case <-time.After(time.Hour):
			t.Error("it has not ended within an hour")
			_ = near.Close()
			<-ended
		}
		_ = far.Close()
		p.Close()
	})
}
