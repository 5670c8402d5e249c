package upstream_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/proxy/upstream"
)

// Whatever fails, is slow or is given up: no request gets the answer to another, none
// waits without end, nothing is left behind.
func TestThePoolServesOrFailsEveryRequest(t *testing.T) {
	seeds := uint64(150)
	if testing.Short() {
		seeds = 20
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) { storm(t, seed) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func storm(t *testing.T, seed uint64) {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 0))
	chance := func(percent int) bool {
		mu.Lock()
		defer mu.Unlock()
		return random.IntN(100) < percent
	}
	upTo := func(d time.Duration) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return time.Duration(random.Int64N(int64(d)))
	}
	var dials, most, open atomic.Int32
	badDials := int(seed % 60)
	cfg := upstream.Config{
		Address: "192.0.2.1:80", MaxIdle: 1 + int(seed%7), IdleTimeout: time.Second, DialTimeout: 200 * time.Millisecond,
	}
	var serving sync.WaitGroup
	cfg.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
		now := dials.Add(1)
		defer dials.Add(-1)
		for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
		}
		select {
		case <-time.After(upTo(250 * time.Millisecond)):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if chance(badDials) {
			return nil, []error{syscall.ECONNREFUSED, syscall.ECONNRESET}[upTo(2)]
		}
		near, far := net.Pipe()
		open.Add(1)
		serving.Go(func() {
			defer open.Add(-1)
			defer far.Close()
			for br := bufio.NewReader(far); ; {
				r, err := http.ReadRequest(br)
				if err != nil {
					return
				}
				if chance(5) { // dies before it answers
					return
				}
				time.Sleep(upTo(50 * time.Millisecond))
				if br.Buffered() > 0 {
					t.Errorf("a request was sent before the answer to another")
				}
				length := fmt.Sprint(len(r.URL.Path))
				if r.Method == http.MethodHead {
					_, err = io.WriteString(far, "HTTP/1.1 200 OK\r\nContent-Length: "+length+"\r\nPath: "+r.URL.Path+"\r\n\r\n")
				} else {
					_, err = io.WriteString(far, "HTTP/1.1 200 OK\r\nContent-Length: "+length+"\r\nPath: "+r.URL.Path+"\r\n\r\n"+r.URL.Path)
				}
				if err != nil || chance(5) { // dies after it
					return
				}
			}
		})
		return near, nil
	}
	pool := newPool(t, cfg)
	var requests sync.WaitGroup
	for i := range 120 {
		requests.Go(func() {
			time.Sleep(upTo(2 * time.Second))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if chance(20) {
				stop := time.AfterFunc(upTo(300*time.Millisecond), cancel)
				defer stop.Stop()
			}
			began := time.Now()
			x := upstream.Options{Deadline: began.Add(time.Second)}
			w, path := httptest.NewRecorder(), fmt.Sprintf("/%d", i)
			method := []string{"GET", "POST", "HEAD"}[upTo(3)]
			_, err := pool.Carry(w, httptest.NewRequestWithContext(ctx, method, path, nil), &x)
			if took := time.Since(began); took > 1100*time.Millisecond {
				t.Errorf("a request ended after %v: %v", took, err)
			}
			if err == nil && (w.Header().Get("Path") != path || method != "HEAD" && w.Body.String() != path) {
				t.Errorf("%s %s was answered %v %q", method, path, w.Header(), w.Body)
			}
		})
	}
	var others sync.WaitGroup
	others.Go(func() {
		for range 5 {
			time.Sleep(upTo(400 * time.Millisecond))
			_ = pool.Warm(t.Context())
			if chance(30) {
				pool.Abandon()
			}
		}
	})
	if seed%3 == 0 { // it ends in the middle
		time.Sleep(upTo(2 * time.Second))
		ctx, cancel := context.WithTimeout(t.Context(), upTo(time.Second))
		defer cancel()
		_ = pool.Drain(ctx)
	}
	requests.Wait()
	others.Wait()
	synctest.Wait()
	if s := pool.Stats(); s.InFlight != 0 || s.Waiting != 0 || s.Open != s.Idle || s.Idle > cfg.MaxIdle {
		t.Errorf("when all have ended: %+v", s)
	}
	if err := pool.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	serving.Wait()
	if n := most.Load(); n > maxDials {
		t.Errorf("%d dials at once", n)
	}
	if s := pool.Stats(); s.Open+s.InFlight+s.Waiting+s.Dialling != 0 || open.Load() != 0 {
		t.Errorf("at the end %+v, %d connections open", s, open.Load())
	}
}

// The same over HTTP/2, where all that wait share one dial.
func TestAPoolOverHTTP2ServesOrFailsEveryRequest(t *testing.T) {
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) { stormOverHTTP2(t, seed) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// accepting is a listener of the far ends of pipes.
type accepting chan net.Conn

func (a accepting) Accept() (net.Conn, error) {
	if c, ok := <-a; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (a accepting) Close() error   { return nil }
func (a accepting) Addr() net.Addr { return &net.TCPAddr{} }

func stormOverHTTP2(t *testing.T, seed uint64) {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 2))
	upTo := func(n int) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return time.Duration(random.IntN(n)) * time.Millisecond
	}
	far := make(accepting, 1000)
	server := &http.Server{Protocols: new(http.Protocols), HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 5},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(upTo(50))
			_, _ = io.WriteString(w, r.URL.Path)
		})}
	server.Protocols.SetUnencryptedHTTP2(true)
	served := make(chan error, 1)
	go func() { served <- server.Serve(far) }()
	dials := map[context.Context]bool{} // under way
	pool := newPool(t, upstream.Config{
		Address: "192.0.2.1:80", Protocol: advertise.H2C, MaxConns: 3, DialTimeout: 200 * time.Millisecond,
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			mu.Lock()
			for other := range dials {
				if other.Err() == nil {
					t.Error("two dials at once that requests wait for")
				}
			}
			dials[ctx] = true
			mu.Unlock()
			defer func() {
				mu.Lock()
				defer mu.Unlock()
				delete(dials, ctx)
			}()
			select {
			case <-time.After(upTo(250)):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			if upTo(100) < 30*time.Millisecond {
				return nil, syscall.ECONNREFUSED
			}
			near, end := net.Pipe()
			far <- end
			if upTo(100) < 20*time.Millisecond { // breaks in the middle
				time.AfterFunc(upTo(500), func() { _ = end.Close() })
			}
			return near, nil
		},
	})
	var requests sync.WaitGroup
	for i := range 100 {
		requests.Go(func() {
			time.Sleep(upTo(1500))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if upTo(100) < 20*time.Millisecond {
				stop := time.AfterFunc(upTo(200), cancel)
				defer stop.Stop()
			}
			began := time.Now()
			w, path := httptest.NewRecorder(), fmt.Sprintf("/%d", i)
			_, err := pool.Carry(w, httptest.NewRequestWithContext(ctx, "GET", path, nil), &upstream.Options{Deadline: began.Add(time.Second)})
			if took := time.Since(began); took > 1100*time.Millisecond || err == nil && w.Body.String() != path {
				t.Errorf("%s: %q, %v after %v", path, w.Body, err, took)
			}
		})
	}
	for range 3 {
		_ = pool.Warm(t.Context())
		time.Sleep(upTo(300))
	}
	requests.Wait()
	if err := pool.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	if s := pool.Stats(); s.Open+s.InFlight+s.Dialling != 0 {
		t.Errorf("at the end %+v", s)
	}
	close(far)
	_ = server.Close()
	<-served
	time.Sleep(time.Second) // its handlers end
}
