package upstream_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/proxy/upstream"
)

func TestOnlyAFewConnectionsToAnEndpointAreOpenedAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const burst = 600
		p := newPipes(t, upstream.Config{})
		var ended []<-chan carried
		for i := range burst {
			ended = append(ended, p.carry(t.Context(), "GET", fmt.Sprintf("/%d", i), upstream.Options{}))
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
			p.carry(t.Context(), "GET", "/", upstream.Options{})
		}
		p.carry(ctx, "GET", "/", upstream.Options{})
		expect("all wait", 3, 3, 0, 0, 0, 0, 0, 0, 0)
		cancel()
		time.Sleep(20 * time.Millisecond) // the period of the watch
		expect("one is cancelled", 2, 3, 0, 0, 0, 0, 0, 1, 0)
		(<-p.dials).succeed()
		expect("one connection serves two", 0, 2, 1, 0, 1, 1, 0, 1, 0)
		for range 2 {
			(<-p.dials).fail(syscall.ECONNREFUSED)
		}
		expect("dials fail that no request waits for", 0, 0, 1, 2, 1, 1, 0, 1, 0)
		p.end(t)

		p = newPipes(t, upstream.Config{Activity: &a})
		p.carry(t.Context(), "GET", "/", upstream.Options{})
		synctest.Wait()
		(<-p.dials).fail(syscall.ECONNREFUSED)
		expect("a dial fails", 0, 0, 1, 3, 1, 1, 1, 1, 0)
		p.carry(t.Context(), "GET", "/", upstream.Options{})
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
			ended = append(ended, p.carry(t.Context(), "POST", path, upstream.Options{}))
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
	for _, protocol := range []advertise.Protocol{advertise.HTTP1, advertise.H2C} {
		synctest.Test(t, func(t *testing.T) {
			p := newPipes(t, upstream.Config{Protocol: protocol})
			failing := p.carry(t.Context(), "GET", "/", upstream.Options{})
			dial := <-p.dials
			time.Sleep(300 * time.Millisecond) // of the bubble: how long the dial takes
			dial.fail(syscall.ECONNREFUSED)
			if c := <-failing; c.err == nil || c.res.Waited != 300*time.Millisecond {
				t.Errorf("%s: a failed dial: %v, %v", protocol, c.res.Waited, c.err)
			}
			if protocol == advertise.H2C { // the endpoint of this test speaks HTTP/1.1
				return
			}
			cold := p.carry(t.Context(), "GET", "/", upstream.Options{})
			dial = <-p.dials
			time.Sleep(200 * time.Millisecond)
			dial.succeed()
			if c := <-cold; c.err != nil || c.res.Waited != 200*time.Millisecond {
				t.Errorf("a new connection: %v, %v", c.res.Waited, c.err)
			}
			if c := <-p.carry(t.Context(), "GET", "/", upstream.Options{}); c.err != nil || c.res.Waited != 0 || !c.res.Reused {
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
		first := p.carry(ctx, "GET", "/first", upstream.Options{})
		synctest.Wait()
		began := time.Now()
		late := p.carry(t.Context(), "GET", "/late", upstream.Options{Deadline: began.Add(300 * time.Millisecond)})
		synctest.Wait()
		cancel()
		if c := <-first; c.err == nil || !c.err.Client() || c.err.Sent() {
			t.Errorf("the cancelled one: %v", c.err)
		}
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
		if c := <-p.carry(t.Context(), "GET", "/next", upstream.Options{}); c.err != nil || !c.res.Reused {
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
					open = p.carry(t.Context(), "GET", "/open", upstream.Options{})
					(<-p.dials).succeed()
					synctest.Wait()
				}
				var failed, done atomic.Int32
				for range 10 {
					ended := p.carry(t.Context(), "GET", "/", upstream.Options{})
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
	for _, protocol := range []advertise.Protocol{advertise.HTTP1, advertise.H2C} {
		t.Run(fmt.Sprint("protocol ", protocol), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPipes(t, upstream.Config{Protocol: protocol})
				// blames is how many of ten requests blame the endpoint.
				blames := func(end func()) (n int) {
					var all []<-chan carried
					for range 10 {
						all = append(all, p.carry(t.Context(), "GET", "/", upstream.Options{}))
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

// The attempt limits a wait; DialTimeout limits a dial.
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
		slow := p.carry(t.Context(), "GET", "/slow", upstream.Options{})
		(<-p.dials).succeed()
		synctest.Wait()
		var waiting []<-chan carried
		for range 20 {
			waiting = append(waiting, p.carry(t.Context(), "GET", "/", upstream.Options{Deadline: time.Now().Add(10 * time.Second)}))
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
		first, second := p.carry(t.Context(), "GET", "/", upstream.Options{}), p.carry(t.Context(), "GET", "/", upstream.Options{})
		synctest.Wait() // both wait, so that neither takes the other's connection
		for range 2 {
			(<-p.dials).succeed()
		}
		<-first
		<-second
		synctest.Wait()
		close(over)
		again := p.carry(t.Context(), "GET", "/", upstream.Options{})
		synctest.Wait()
		if s := p.pool.Stats(); s.Waiting != 1 || s.Dialling != 1 || s.Idle != 1 {
			t.Errorf("%+v, want it to wait for a new connection next to an idle one", s)
		}
		p.mu.Lock()
		p.answer = nil
		p.mu.Unlock()
		(<-p.dials).succeed()
		if c := <-again; c.err != nil || c.res.Reused {
			t.Errorf("%+v, %v", c.res, c.err)
		}
		if c := <-p.carry(t.Context(), "POST", "/", upstream.Options{}); c.err != nil { // over the new one, used last
			t.Error(c.err)
		}
		p.end(t)
	})
}

func TestWhoWaitsTakesAConnectionWhenItHasRested(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes(t, upstream.Config{})
		p.answer = func(string) string { return "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n" }
		head := p.carry(t.Context(), "HEAD", "/", upstream.Options{})
		(<-p.dials).succeed()
		<-head
		p.mu.Lock()
		p.answer = nil
		p.mu.Unlock()
		began := time.Now()
		c := <-p.carry(t.Context(), "GET", "/", upstream.Options{}) // its dial hangs
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
		waits := p.carry(t.Context(), "GET", "/", upstream.Options{})
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
			waits := p.carry(ctx, "GET", "/", upstream.Options{})
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
			later := p.carry(t.Context(), "GET", "/", upstream.Options{})
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
		p := newPipes(t, upstream.Config{Protocol: advertise.H2C})
		ctx, cancel := context.WithCancel(t.Context())
		given := p.carry(ctx, "GET", "/", upstream.Options{})
		synctest.Wait()
		late := p.carry(t.Context(), "GET", "/", upstream.Options{Deadline: time.Now().Add(300 * time.Millisecond)})
		var all []<-chan carried
		for range 10 {
			all = append(all, p.carry(t.Context(), "GET", "/", upstream.Options{}))
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
		given = p.carry(ctx, "GET", "/", upstream.Options{})
		synctest.Wait()
		cancel()
		<-given
		p.end(t)
		if took := time.Since(began); took != 0 {
			t.Errorf("ended after %v", took)
		}
	})
}
