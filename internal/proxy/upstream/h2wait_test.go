package upstream_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/proxy/upstream"
)

// narrow is a service of HTTP/2 that allows one stream on a connection, and a pool to it.
type narrow struct {
	*upstream.Pool
	t     *testing.T
	dials atomic.Int32
	hold  chan struct{} // requests for /held end with it

	mu    sync.Mutex // guards the fields below
	order []string   // in which the requests arrived
}

// withNarrow runs a test in a bubble. dial returns the error of the n-th dial, counted from 1.
func withNarrow(t *testing.T, conns int, dial func(n int32) error, test func(*narrow)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &narrow{t: t, hold: make(chan struct{})}
		far := make(accepting, 100)
		server := &http.Server{Protocols: new(http.Protocols), HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 1}, Handler: s}
		server.Protocols.SetUnencryptedHTTP2(true)
		served := make(chan error, 1)
		go func() { served <- server.Serve(far) }()
		s.Pool = newPool(t, upstream.Config{
			Address: "192.0.2.1:80", Protocol: advertise.H2C, MaxConns: conns,
			Dial: func(context.Context, string, string) (net.Conn, error) {
				if err := dial(s.dials.Add(1)); err != nil {
					return nil, err
				}
				near, end := net.Pipe()
				far <- end
				return near, nil
			},
		})
		test(s)
		if err := s.Drain(t.Context()); err != nil {
			t.Error(err)
		}
		close(far)
		_ = server.Close()
		<-served
		time.Sleep(time.Second) // its handlers end
	})
}

func (s *narrow) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.order = append(s.order, r.URL.Path)
	s.mu.Unlock()
	if r.URL.Path == "/held" {
		<-s.hold
	}
	time.Sleep(10 * time.Millisecond) // works
	_, _ = io.WriteString(w, r.URL.Path)
}

// get sends a request and returns its fault when it has ended.
func (s *narrow) get(path string) <-chan *upstream.Fault { return s.getWithin(path, time.Second) }

func (s *narrow) getWithin(path string, d time.Duration) <-chan *upstream.Fault {
	failed := make(chan *upstream.Fault, 1)
	go func() {
		_, err := s.Carry(httptest.NewRecorder(), httptest.NewRequestWithContext(s.t.Context(), "GET", path, nil), &upstream.Options{Deadline: time.Now().Add(d)})
		failed <- err
	}()
	synctest.Wait()
	return failed
}

func works(int32) error { return nil }

func TestRequestsWaitForTheFirstStreamThatBecomesFreeInOrder(t *testing.T) {
	withNarrow(t, 2, works, func(s *narrow) {
		held := s.get("/held")
		var waiting []<-chan *upstream.Fault
		var want []string
		for i := range 20 {
			path := fmt.Sprint("/", i)
			waiting, want = append(waiting, s.get(path)), append(want, path)
		}
		for i, failed := range waiting {
			if err := <-failed; err != nil {
				t.Errorf("request %d: %v", i, err)
			}
		}
		if got := s.order[1:]; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("the requests arrived in the order %v", got)
		}
		close(s.hold)
		if err := <-held; err != nil {
			t.Error(err)
		}
		if n := s.dials.Load(); n != 2 {
			t.Errorf("%d connections were opened", n)
		}
	})
}

func TestRequestsWaitForAFullConnectionWhileNoOtherCanBeOpened(t *testing.T) {
	withNarrow(t, 8, func(n int32) error {
		if n > 1 {
			return syscall.ECONNREFUSED
		}
		return nil
	}, func(s *narrow) {
		var waiting []<-chan *upstream.Fault
		for i := range 20 {
			waiting = append(waiting, s.get(fmt.Sprint("/", i)))
		}
		for i, failed := range waiting {
			if err := <-failed; err != nil {
				t.Errorf("request %d: %v", i, err)
			}
		}
		if n := s.dials.Load(); n > 2 {
			t.Errorf("%d dials within 200 ms: a service that accepts no more connections is not asked again immediately", n)
		}
	})
}

// The only stream is held for long. After the second dial nothing happens but that time passes.
func TestARequestThatWaitsForAStreamGetsAConnectionOfItsOwnAfterOneThatFailed(t *testing.T) {
	for name, waits := range map[string]struct {
		dial   func(n int32) error
		within time.Duration
	}{
		"refused": {func(n int32) error {
			if n == 2 {
				return syscall.ECONNREFUSED
			}
			return nil
		}, 2 * time.Second},
		"given up": {func(n int32) error {
			if n == 2 {
				time.Sleep(300 * time.Millisecond) // the client of the first that waits leaves before
			}
			return nil
		}, 500 * time.Millisecond},
	} {
		withNarrow(t, 8, waits.dial, func(s *narrow) {
			held := s.getWithin("/held", time.Hour)
			if name == "given up" {
				if err := <-s.getWithin("/leaves", 100*time.Millisecond); err == nil {
					t.Error("a request that waits longer than its time has ended well")
				}
			}
			began := time.Now()
			if err := <-s.getWithin("/waits", 10*time.Second); err != nil || time.Since(began) > waits.within {
				t.Errorf("%s: %v after %v", name, err, time.Since(began))
			}
			close(s.hold)
			<-held
		})
	}
}

func TestTheEndOfAPoolAndOfItsEndpointEndTheWaitForAStream(t *testing.T) {
	for name, end := range map[string]struct {
		by   func(*narrow)
		want error
	}{
		"the endpoint was declared dead": {func(s *narrow) { s.Abandon() }, upstream.ErrAbandoned},
		"a drain ran out of time": {func(s *narrow) {
			over, cancel := context.WithCancel(s.t.Context())
			cancel()
			_ = s.Drain(over)
		}, upstream.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			withNarrow(t, 1, works, func(s *narrow) {
				held, waits := s.get("/held"), s.get("/waits")
				began := time.Now()
				end.by(s)
				if err := <-waits; !errors.Is(err, end.want) || err.Stage != upstream.StageDial || time.Since(began) > 100*time.Millisecond {
					t.Errorf("%v after %v", err, time.Since(began))
				}
				close(s.hold)
				<-held
			})
		})
	}
}

func TestAWaitForAStreamEndsWithTheDeadlineAndSendsNothing(t *testing.T) {
	withNarrow(t, 1, works, func(s *narrow) {
		held, waits := s.get("/held"), s.get("/waits")
		if e := <-waits; e == nil || !e.Timeout() || e.Sent() || e.Stage != upstream.StageDial {
			t.Error(e)
		}
		close(s.hold)
		<-held
		if len(s.order) != 1 {
			t.Errorf("the service got %v", s.order)
		}
	})
}

// A service that stops has sent GOAWAY, and then its host is gone.
func TestAStreamOfAConnectionThatGoesAwayEndsWithItsHostAndWithTheDrain(t *testing.T) {
	for name, drains := range map[string]bool{"its host is gone": false, "a drain runs out of time": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPool(t, upstream.Config{Address: "192.0.2.1:80", Protocol: advertise.H2C, Dial: func(context.Context, string, string) (net.Conn, error) {
					near, far := net.Pipe()
					go goAwayAndFallSilent(far)
					return near, nil
				}})
				failed := make(chan *upstream.Fault, 1)
				go func() {
					_, err := p.Carry(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), "GET", "/", nil), &upstream.Options{})
					failed <- err
				}()
				time.Sleep(2 * time.Second) // the watch has made its rounds
				if drains {
					over, cancel := context.WithCancel(t.Context())
					cancel()
					_ = p.Drain(over)
				}
				select {
				case err := <-failed:
					if err == nil {
						t.Error("an answer without an end was delivered")
					}
				case <-time.After(15 * time.Second):
					t.Fatal("the stream has not ended after 15 s")
				}
				if err := p.Drain(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// goAwayAndFallSilent begins the answer to a request, announces the end of the connection, and reads
// what comes then.
func goAwayAndFallSilent(c net.Conn) {
	defer c.Close()
	if _, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	framer := http2.NewFramer(c, c)
	_ = framer.WriteSettings()
	for {
		switch f, err := framer.ReadFrame(); {
		case err != nil:
			return
		case f.Header().Type == http2.FrameHeaders:
			_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x88}, EndHeaders: true}) // status 200
			_ = framer.WriteGoAway(1, http2.ErrCodeNo, nil)
			_, _ = io.Copy(io.Discard, c)
			return
		}
	}
}

// A service may judge a request by its head, and answer before it takes a byte of the body.
func TestAnAnswerPassesWhileASmallBodyWaitsForTheWindow(t *testing.T) {
	for name, whole := range map[string]bool{"the answer is whole, and the body never taken": true, "the answer begins, and then the body is taken": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe()
				p := newPool(t, upstream.Config{Address: "192.0.2.1:80", Protocol: advertise.H2C, Dial: func(context.Context, string, string) (net.Conn, error) { return near, nil }})
				framer := http2.NewFramer(far, far)
				taken := make(chan string, 1)
				go answerFirst(far, framer, whole, taken)
				if err := p.Warm(t.Context()); err != nil {
					t.Fatal(err)
				}
				synctest.Wait() // its settings have arrived
				w, began := httptest.NewRecorder(), time.Now()
				failed := make(chan *upstream.Fault, 1)
				go func() {
					_, err := p.Carry(w, httptest.NewRequestWithContext(t.Context(), "POST", "/", strings.NewReader("ten bytes.")), &upstream.Options{Deadline: began.Add(time.Minute)})
					failed <- err
				}()
				synctest.Wait()
				if w.Code != http.StatusAccepted {
					t.Errorf("%d before any time has passed", w.Code)
				}
				if !whole {
					_ = framer.WriteWindowUpdate(1, 10)
					if body := <-taken; body != "ten bytes." {
						t.Errorf("the service got %q", body)
					}
					_ = framer.WriteData(1, true, nil)
				}
				if err := <-failed; err != nil || time.Since(began) > 0 {
					t.Errorf("%v after %v", err, time.Since(began))
				}
				_ = far.Close()
				p.Close()
			})
		})
	}
}

// answerFirst grants no window for bodies and answers 202 to the head of a request.
func answerFirst(c net.Conn, framer *http2.Framer, whole bool, taken chan<- string) {
	if _, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	_ = framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	body := ""
	for {
		f, err := framer.ReadFrame()
		if err != nil {
			return
		}
		switch f := f.(type) {
		case *http2.HeadersFrame:
			_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: append([]byte{0x08, 3}, "202"...), EndHeaders: true, EndStream: whole}) // :status 202
		case *http2.DataFrame:
			if body += string(f.Data()); f.StreamEnded() {
				taken <- body
			}
		}
	}
}
