package upstream_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringway/ringway/internal/proxy/upstream"
)

// maxDials is the pool's own.
const maxDials = 4

// pipes is an endpoint in memory, for tests in a bubble of synctest: its dials wait
// until the test decides on them.
type pipes struct {
	pool    *upstream.Pool
	dials   chan dialling // under way
	running sync.WaitGroup

	mu     sync.Mutex
	served []string // the paths of the requests, in order
	answer func(path string) string
}

// dialling is one dial that has begun.
type dialling struct {
	ctx    context.Context
	result chan error
}

func (d dialling) succeed()       { d.result <- nil }
func (d dialling) fail(err error) { d.result <- err }

func newPipes(t *testing.T, cfg upstream.Config) *pipes {
	p := &pipes{dials: make(chan dialling, 1000)}
	cfg.Address = "192.0.2.1:80"
	cfg.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
		d := dialling{ctx, make(chan error, 1)}
		p.dials <- d
		select {
		case err := <-d.result:
			if err != nil {
				return nil, err
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		near, far := net.Pipe()
		p.running.Go(func() { p.serve(far) })
		return near, nil
	}
	p.pool = newPool(t, cfg)
	return p
}

// serve answers 200 with the path, or with what answer says: then it waits before.
func (p *pipes) serve(c net.Conn) {
	defer c.Close()
	br := bufio.NewReader(c)
	for {
		r, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		p.mu.Lock()
		p.served = append(p.served, r.URL.Path)
		answer := p.answer
		p.mu.Unlock()
		text := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(r.URL.Path), r.URL.Path)
		if answer != nil {
			text = answer(r.URL.Path)
		}
		if text == "" {
			return
		}
		if _, err := io.WriteString(c, text); err != nil {
			return
		}
	}
}

// carried is how a request ended.
type carried struct {
	path, body string
	outcome
}

// carry begins a request.
func (p *pipes) carry(ctx context.Context, method, path string, x upstream.Exchange) <-chan carried {
	done := make(chan carried, 1)
	go func() {
		w := httptest.NewRecorder()
		res, err := p.pool.Carry(w, httptest.NewRequestWithContext(ctx, method, path, nil), x)
		var e *upstream.Error
		errors.As(err, &e)
		done <- carried{path, w.Body.String(), outcome{res, e}}
	}()
	return done
}

// end drains the pool, after which nothing may be left.
func (p *pipes) end(t *testing.T) {
	t.Helper()
	if err := p.pool.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	if s := p.pool.Stats(); s.Open+s.InFlight+s.Waiting+s.Dialling != 0 {
		t.Errorf("at the end %+v", s)
	}
	p.running.Wait()
}

func TestOnlyAFewConnectionsToAnEndpointAreOpenedAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const burst = 600
		p := newPipes(t, upstream.Config{})
		var ended []<-chan carried
		for i := range burst {
			ended = append(ended, p.carry(t.Context(), "GET", fmt.Sprintf("/%d", i), upstream.Exchange{}))
		}
		synctest.Wait()
		if s := p.pool.Stats(); s.Dialling != maxDials || s.Waiting != burst || len(p.dials) != maxDials {
			t.Fatalf("%+v, want %d connections opened for %d requests that wait", s, maxDials, burst)
		}
		(<-p.dials).succeed() // it carries one after the other
		for i, done := range ended {
			if c := <-done; c.err != nil || c.body != c.path {
				t.Fatalf("request %d: %q, %v", i, c.body, c.err)
			}
		}
		if s := p.pool.Stats(); s.Dials != 1 || s.Reused != burst-1 {
			t.Errorf("%+v, want all over one connection", s)
		}
		for range maxDials { // one was begun when the first had ended
			(<-p.dials).succeed()
		}
		synctest.Wait()
		if s := p.pool.Stats(); s.Idle != maxDials+1 || s.Dialling != 0 {
			t.Errorf("%+v, want the connections that no request needed any more kept", s)
		}
		p.end(t)
	})
}

func TestWaitsAndDialsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a upstream.Activity
		p := newPipes(t, upstream.Config{Activity: &a})
		expect := func(when string, waiting, dialling int64, opened, failed uint64, waits ...uint64) {
			t.Helper()
			synctest.Wait()
			var ends []uint64
			for i := range a.Waits {
				ends = append(ends, a.Waits[i].Load())
			}
			if a.Waiting.Load() != waiting || a.Dialling.Load() != dialling || a.Opened.Load() != opened || a.Failed.Load() != failed || !slices.Equal(ends, waits) {
				t.Errorf("%s: waiting %d, dialling %d, opened %d, failed %d, waits %v %v", when,
					a.Waiting.Load(), a.Dialling.Load(), a.Opened.Load(), a.Failed.Load(), upstream.WaitEnds(), ends)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		for range 2 {
			p.carry(t.Context(), "GET", "/", upstream.Exchange{})
		}
		p.carry(ctx, "GET", "/", upstream.Exchange{})
		expect("all wait", 3, 3, 0, 0, 0, 0, 0, 0, 0)
		cancel()
		expect("one is cancelled", 2, 3, 0, 0, 0, 0, 0, 1, 0)
		(<-p.dials).succeed()
		expect("one connection serves two", 0, 2, 1, 0, 1, 1, 0, 1, 0)
		for range 2 {
			(<-p.dials).fail(syscall.ECONNREFUSED)
		}
		expect("dials fail that no request waits for", 0, 0, 1, 2, 1, 1, 0, 1, 0)
		p.end(t)

		p = newPipes(t, upstream.Config{Activity: &a})
		p.carry(t.Context(), "GET", "/", upstream.Exchange{})
		synctest.Wait()
		(<-p.dials).fail(syscall.ECONNREFUSED)
		expect("a dial fails", 0, 0, 1, 3, 1, 1, 1, 1, 0)
		p.carry(t.Context(), "GET", "/", upstream.Exchange{})
		synctest.Wait()
		p.pool.Abandon()
		p.pool.Close()
		expect("the endpoint is dead", 0, 0, 1, 3, 1, 1, 1, 1, 1)
		p.end(t)
	})
}

func TestRequestsThatWaitAreServedInTheOrderInWhichTheyCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes(t, upstream.Config{})
		var ended []<-chan carried
		var want []string
		for i := range 50 {
			path := fmt.Sprintf("/%d", i)
			want = append(want, path)
			ended = append(ended, p.carry(t.Context(), "POST", path, upstream.Exchange{}))
			synctest.Wait()
		}
		(<-p.dials).succeed()
		for _, done := range ended {
			if c := <-done; c.err != nil {
				t.Fatal(c.err)
			}
		}
		if !slices.Equal(p.served, want) {
			t.Errorf("served %v", p.served)
		}
		p.end(t)
	})
}

func TestTheWaitForAConnectionIsReportedAndAWarmOneHasNone(t *testing.T) {
	for _, protocol := range []upstream.Protocol{upstream.HTTP1, upstream.H2C} {
		synctest.Test(t, func(t *testing.T) {
			p := newPipes(t, upstream.Config{Protocol: protocol})
			failing := p.carry(t.Context(), "GET", "/", upstream.Exchange{})
			dial := <-p.dials
			time.Sleep(300 * time.Millisecond) // of the bubble: how long the dial takes
			dial.fail(syscall.ECONNREFUSED)
			if c := <-failing; c.err == nil || c.res.Waited != 300*time.Millisecond {
				t.Errorf("%s: a failed dial: %v, %v", protocol, c.res.Waited, c.err)
			}
			if protocol == upstream.H2C { // the endpoint of this test speaks HTTP/1.1
				return
			}
			cold := p.carry(t.Context(), "GET", "/", upstream.Exchange{})
			dial = <-p.dials
			time.Sleep(200 * time.Millisecond)
			dial.succeed()
			if c := <-cold; c.err != nil || c.res.Waited != 200*time.Millisecond {
				t.Errorf("a new connection: %v, %v", c.res.Waited, c.err)
			}
			if c := <-p.carry(t.Context(), "GET", "/", upstream.Exchange{}); c.err != nil || c.res.Waited != 0 || !c.res.Reused {
				t.Errorf("a warm connection: %v, %v", c.res.Waited, c.err)
			}
			p.end(t)
		})
	}
}

func TestACancelledRequestLeavesTheQueueAndItsDialServesAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes(t, upstream.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		first := p.carry(ctx, "GET", "/first", upstream.Exchange{})
		synctest.Wait()
		late := p.carry(t.Context(), "GET", "/late", upstream.Exchange{Deadline: time.Now().Add(300 * time.Millisecond)})
		synctest.Wait()
		cancel()
		if c := <-first; c.err == nil || !c.err.Client() || c.err.Sent() {
			t.Errorf("the cancelled one: %v", c.err)
		}
		began := time.Now()
		if c := <-late; c.err == nil || !c.err.Timeout() || c.err.Client() || c.err.Stage != upstream.StageDial || time.Since(began) != 300*time.Millisecond {
			t.Errorf("the one whose time is over: %v after %v", c.err, time.Since(began))
		}
		if s := p.pool.Stats(); s.Waiting != 0 || s.Dialling != 2 {
			t.Errorf("%+v, want the dials to go on", s)
		}
		for range 2 {
			(<-p.dials).succeed()
		}
		synctest.Wait()
		if c := <-p.carry(t.Context(), "GET", "/next", upstream.Exchange{}); c.err != nil || !c.res.Reused {
			t.Errorf("%+v, %v, want one of the connections that were being opened", c.res, c.err)
		}
		p.end(t)
	})
}

// The others would find out the same one after the other, while there may be an
// endpoint that answers.
func TestAFailedDialEndsTheWaitOfAllWhereNoneCouldBeServed(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	for _, test := range []struct {
		name string
		open bool // one connection works
		err  error
		fail int // how many requests end with the first dial
	}{
		{"refused, nothing open", false, refused, 10},
		{"no answer, nothing open", false, context.DeadlineExceeded, 10},
		{"refused, one open", true, refused, 10},
		{"no answer, one open", true, context.DeadlineExceeded, 1},
		{"reset, one open", true, syscall.ECONNRESET, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				p := newPipes(t, upstream.Config{})
				p.answer = func(path string) string {
					if path == "/open" {
						<-release
					}
					return "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
				}
				var open <-chan carried
				if test.open {
					open = p.carry(t.Context(), "GET", "/open", upstream.Exchange{})
					(<-p.dials).succeed()
					synctest.Wait()
				}
				var failed, done atomic.Int32
				for range 10 {
					ended := p.carry(t.Context(), "GET", "/", upstream.Exchange{})
					go func() {
						if c := <-ended; c.err != nil {
							failed.Add(1)
							if c.err.Stage != upstream.StageDial || c.err.Sent() || c.err.Client() || c.err.Timeout() {
								t.Error(c.err)
							}
						}
						done.Add(1)
					}()
				}
				synctest.Wait()
				(<-p.dials).fail(test.err)
				synctest.Wait()
				if n := int(failed.Load()); n != test.fail {
					t.Errorf("%d failed, want %d", n, test.fail)
				}
				if s := p.pool.Stats(); s.Waiting != 10-test.fail || s.Waiting > 0 && s.Dialling != maxDials {
					t.Errorf("%+v", s)
				}
				close(release) // what comes free serves the rest
				synctest.Wait()
				if open != nil {
					if c := <-open; c.err != nil {
						t.Error(c.err)
					}
				}
				if done.Load() != 10 && test.open {
					t.Errorf("%d of 10 have ended", done.Load())
				}
				p.end(t)
			})
		})
	}
}

func TestDialsThatRunOutOfTimeTogetherBlameTheEndpointOnce(t *testing.T) {
	for _, protocol := range []upstream.Protocol{upstream.HTTP1, upstream.H2C} {
		t.Run(fmt.Sprint("protocol ", protocol), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPipes(t, upstream.Config{Protocol: protocol})
				// blames is how many of ten requests blame the endpoint.
				blames := func(end func()) (n int) {
					var all []<-chan carried
					for range 10 {
						all = append(all, p.carry(t.Context(), "GET", "/", upstream.Exchange{}))
					}
					end()
					for _, done := range all {
						if c := <-done; c.err == nil || c.err.Stage != upstream.StageDial {
							t.Error(c.err)
						} else if !c.err.Repeated() {
							n++
						}
					}
					for len(p.dials) > 0 {
						<-p.dials
					}
					return n
				}
				ranOut := func() { time.Sleep(2 * time.Second) }
				for range 3 { // each second of silence is one failure
					if n := blames(ranOut); n != 1 {
						t.Errorf("ran out of time: blamed %d times, want once", n)
					}
				}
				refused := func() {
					synctest.Wait()
					for len(p.dials) > 0 {
						(<-p.dials).fail(syscall.ECONNREFUSED)
					}
				}
				if n := blames(refused); n != 10 { // that is the endpoint's own answer
					t.Errorf("refused: blamed %d times, want 10", n)
				}
				p.end(t)
			})
		})
	}
}

// Its limit is that of its attempt; DialTimeout is that of a dial.
func TestAWaitMayOutlastTheLimitOfADial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		p := newPipes(t, upstream.Config{DialTimeout: time.Second})
		p.answer = func(path string) string {
			if path == "/slow" {
				<-release
			}
			return "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
		}
		slow := p.carry(t.Context(), "GET", "/slow", upstream.Exchange{})
		(<-p.dials).succeed()
		synctest.Wait()
		var waiting []<-chan carried
		for range 20 {
			waiting = append(waiting, p.carry(t.Context(), "GET", "/", upstream.Exchange{Deadline: time.Now().Add(10 * time.Second)}))
			synctest.Wait()
		}
		time.Sleep(2500 * time.Millisecond) // all dials have ended twice
		close(release)
		<-slow
		failed := 0
		for i, done := range waiting {
			c := <-done
			if c.err == nil {
				continue
			}
			failed++
			if i >= 2*maxDials || !strings.Contains(c.err.Error(), "no connection within 1s") {
				t.Errorf("request %d: %v", i, c.err)
			}
		}
		if failed != 2*maxDials {
			t.Errorf("%d failed, want one for each dial", failed)
		}
		p.end(t)
	})
}

func TestARequestWhoseReusedConnectionIsOverGetsANewOneAndNotAnotherIdleOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over := make(chan struct{})
		p := newPipes(t, upstream.Config{})
		p.answer = func(path string) string {
			select {
			case <-over:
				return "" // closes it
			default:
				return "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
			}
		}
		first, second := p.carry(t.Context(), "GET", "/", upstream.Exchange{}), p.carry(t.Context(), "GET", "/", upstream.Exchange{})
		synctest.Wait() // both wait, so that neither takes the other's connection
		for range 2 {
			(<-p.dials).succeed()
		}
		<-first
		<-second
		synctest.Wait()
		close(over)
		again := p.carry(t.Context(), "GET", "/", upstream.Exchange{})
		synctest.Wait()
		if s := p.pool.Stats(); s.Waiting != 1 || s.Dialling != 1 || s.Idle != 1 {
			t.Errorf("%+v, want it to wait for a new connection beside an idle one", s)
		}
		p.mu.Lock()
		p.answer = nil
		p.mu.Unlock()
		(<-p.dials).succeed()
		if c := <-again; c.err != nil || c.res.Reused {
			t.Errorf("%+v, %v", c.res, c.err)
		}
		if c := <-p.carry(t.Context(), "POST", "/", upstream.Exchange{}); c.err != nil { // over the new one, used last
			t.Error(c.err)
		}
		p.end(t)
	})
}

func TestWhoWaitsTakesAConnectionWhenItHasRested(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes(t, upstream.Config{})
		p.answer = func(string) string { return "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n" }
		head := p.carry(t.Context(), "HEAD", "/", upstream.Exchange{})
		(<-p.dials).succeed()
		<-head
		p.mu.Lock()
		p.answer = nil
		p.mu.Unlock()
		began := time.Now()
		c := <-p.carry(t.Context(), "GET", "/", upstream.Exchange{}) // its dial hangs
		if took := time.Since(began); c.err != nil || !c.res.Reused || took < 20*time.Millisecond || took > 100*time.Millisecond {
			t.Errorf("%+v, %v after %v", c.res, c.err, took)
		}
		(<-p.dials).succeed()
		p.end(t)
	})
}

func TestTheEndOfAPool(t *testing.T) {
	begin := func(t *testing.T) (*pipes, <-chan carried) {
		p := newPipes(t, upstream.Config{})
		waits := p.carry(t.Context(), "GET", "/", upstream.Exchange{})
		synctest.Wait()
		return p, waits
	}
	for name, test := range map[string]func(t *testing.T){
		"a request that waits when it is closed is served": func(t *testing.T) {
			p, waits := begin(t)
			p.pool.Close()
			synctest.Wait()
			(<-p.dials).succeed()
			if c := <-waits; c.err != nil {
				t.Error(c.err)
			}
			p.end(t)
		},
		"a dial that no request waits for is stopped": func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			p := newPipes(t, upstream.Config{})
			waits := p.carry(ctx, "GET", "/", upstream.Exchange{})
			synctest.Wait()
			cancel()
			<-waits
			began := time.Now()
			p.end(t)
			if took := time.Since(began); took != 0 {
				t.Errorf("after %v", took)
			}
		},
		"a request that waits is cut off": func(t *testing.T) {
			p, waits := begin(t)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := p.pool.Drain(ctx); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			if c := <-waits; c.err == nil || !errors.Is(c.err, upstream.ErrClosed) || c.err.Client() {
				t.Error(c.err)
			}
			p.end(t)
		},
		"a request that waits for an endpoint that is dead ends at once": func(t *testing.T) {
			p, waits := begin(t)
			p.pool.Abandon()
			if c := <-waits; c.err == nil || !errors.Is(c.err, upstream.ErrAbandoned) || c.err.Client() || c.err.Sent() {
				t.Error(c.err)
			}
			later := p.carry(t.Context(), "GET", "/", upstream.Exchange{})
			synctest.Wait()
			(<-p.dials).succeed()
			if c := <-later; c.err != nil {
				t.Error(c.err)
			}
			p.end(t)
		},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
	}
}

// Over HTTP/2 one connection is opened for all.
func TestRequestsOverHTTP2ShareADialAndItsFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes(t, upstream.Config{Protocol: upstream.H2C})
		ctx, cancel := context.WithCancel(t.Context())
		given := p.carry(ctx, "GET", "/", upstream.Exchange{})
		synctest.Wait()
		late := p.carry(t.Context(), "GET", "/", upstream.Exchange{Deadline: time.Now().Add(300 * time.Millisecond)})
		var all []<-chan carried
		for range 10 {
			all = append(all, p.carry(t.Context(), "GET", "/", upstream.Exchange{}))
		}
		synctest.Wait()
		if n := p.pool.Stats().Dialling; n != 1 || len(p.dials) != 1 {
			t.Errorf("%d dials, %d begun", n, len(p.dials))
		}
		cancel()
		if c := <-given; c.err == nil || !c.err.Client() {
			t.Errorf("the cancelled one: %v", c.err)
		}
		began := time.Now()
		if c := <-late; c.err == nil || !c.err.Timeout() || c.err.Client() || time.Since(began) != 300*time.Millisecond {
			t.Errorf("the one whose time is over: %v after %v", c.err, time.Since(began))
		}
		began = time.Now()
		(<-p.dials).fail(syscall.ECONNREFUSED)
		for _, done := range all {
			if c := <-done; c.err == nil || c.err.Stage != upstream.StageDial || c.err.Client() || time.Since(began) != 0 {
				t.Errorf("%v after %v", c.err, time.Since(began))
			}
		}
		if len(p.dials) != 0 {
			t.Error("another dial was begun")
		}
		// A dial that no request waits for any more is stopped.
		ctx, cancel = context.WithCancel(t.Context())
		given = p.carry(ctx, "GET", "/", upstream.Exchange{})
		synctest.Wait()
		cancel()
		<-given
		p.end(t)
		if took := time.Since(began); took != 0 {
			t.Errorf("ended after %v", took)
		}
	})
}

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
			x := upstream.Exchange{Deadline: began.Add(time.Second)}
			w, path := httptest.NewRecorder(), fmt.Sprintf("/%d", i)
			method := []string{"GET", "POST", "HEAD"}[upTo(3)]
			_, err := pool.Carry(w, httptest.NewRequestWithContext(ctx, method, path, nil), x)
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
		Address: "192.0.2.1:80", Protocol: upstream.H2C, MaxConns: 3, DialTimeout: 200 * time.Millisecond,
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
			_, err := pool.Carry(w, httptest.NewRequestWithContext(ctx, "GET", path, nil), upstream.Exchange{Deadline: began.Add(time.Second)})
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
