package upstream_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/proxy/upstream"
)

func TestBadConfigurationIsRefused(t *testing.T) {
	for _, tc := range []struct {
		cfg  upstream.Config
		want string
	}{
		{upstream.Config{}, "address is empty"},
		{upstream.Config{Address: "10.0.0.1"}, "not IP:port"},
		{upstream.Config{Address: "10.0.0.1:80", Protocol: "spdy"}, "unknown protocol"},
		{upstream.Config{Address: "10.0.0.1:80", DialTimeout: -1}, "DialTimeout"},
	} {
		if _, err := upstream.NewPool(tc.cfg); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v, want %q", tc.cfg, err, tc.want)
		}
	}
}

func TestRefusedDialSendsNothing(t *testing.T) {
	for _, protocol := range []advertise.Protocol{advertise.HTTP1, advertise.H2C} {
		in := startIngress(t, newPool(t, upstream.Config{Address: procs.Refusing(t), Protocol: protocol}), nil)
		resp, err := in.client.Post(in.url, "text/plain", strings.NewReader("hello"))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		out := within(t, in.outcomes, "outcome")
		if e := out.err; e == nil || e.Stage != upstream.StageDial || e.Sent() || e.BodyConsumed() || e.Committed() || e.Client() {
			t.Errorf("%s: %+v", protocol, e)
		}
		if err := in.pool.Warm(context.Background()); err == nil {
			t.Errorf("%s: Warm found a connection", protocol)
		}
	}
}

func TestADialThatNeverHadTimeBlamesNoEndpoint(t *testing.T) {
	for _, protocol := range []advertise.Protocol{advertise.HTTP1, advertise.H2C} {
		addr := httpEndpoint(t, func(http.ResponseWriter, *http.Request) { t.Error("the endpoint was asked") })
		in := startIngress(t, newPool(t, upstream.Config{Address: addr, Protocol: protocol}), func(*http.Request) upstream.Options {
			return upstream.Options{Deadline: time.Now().Add(-time.Millisecond)}
		})
		in.get(t, "/")
		if e := within(t, in.outcomes, "outcome").err; e == nil || !e.Timeout() || !e.Local() || e.Exhausted() != "" || e.Sent() {
			t.Errorf("%s: %+v", protocol, e)
		}
	}
}

func TestCallersOfWarmShareOneConnection(t *testing.T) {
	for _, protocol := range []advertise.Protocol{advertise.HTTP1, advertise.H2C} {
		addr := httpEndpoint(t, func(http.ResponseWriter, *http.Request) {})
		for range 20 {
			p := newPool(t, upstream.Config{Address: addr, Protocol: protocol})
			var callers sync.WaitGroup
			for range 8 {
				callers.Go(func() {
					if err := p.Warm(t.Context()); err != nil {
						t.Errorf("%s: %v", protocol, err)
					}
				})
			}
			callers.Wait()
			if s := p.Stats(); s.Dials != 1 || s.Open != 1 {
				t.Errorf("%s: %+v", protocol, s)
			}
			p.Close()
		}
	}
}

func TestWarmOpensOneConnectionAndReplacesADeadOne(t *testing.T) {
	closeFirst := make(chan struct{})
	closed := make(chan struct{})
	addr := rawEndpoint(t, func(n int, c *rawConn) {
		if n == 0 {
			<-closeFirst
			c.Close()
			close(closed)
			return
		}
		c.untilClosed()
	})
	p := newPool(t, upstream.Config{Address: addr})
	defer p.Close()
	for range 2 {
		if err := p.Warm(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if s := p.Stats(); s.Dials != 1 || s.Idle != 1 {
		t.Errorf("stats %+v", s)
	}
	close(closeFirst)
	<-closed
	if err := p.Warm(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := p.Stats(); s.Dials != 2 || s.Idle != 1 {
		t.Errorf("stats after the loss %+v", s)
	}
}

func TestEndpointThatDiesBeforeItsHead(t *testing.T) {
	addr := rawEndpoint(t, func(_ int, c *rawConn) { c.request() })
	in := startIngress(t, newPool(t, upstream.Config{Address: addr}), nil)
	in.get(t, "/")
	e := within(t, in.outcomes, "outcome").err
	if e == nil || e.Stage != upstream.StageHead || !e.Sent() || e.Committed() || e.Stale() || e.Client() {
		t.Errorf("%+v", e)
	}
}

func TestEndpointThatDiesInTheBody(t *testing.T) {
	addr := rawEndpoint(t, func(_ int, c *rawConn) {
		if r, _ := c.request(); r != nil {
			c.say("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello")
		}
	})
	in := startIngress(t, newPool(t, upstream.Config{Address: addr}), nil)
	resp, err := in.client.Get(in.url)
	if err == nil {
		_, err = io.ReadAll(resp.Body)
		resp.Body.Close()
	}
	if err == nil {
		t.Error("the client took the response for complete")
	}
	e := within(t, in.outcomes, "outcome").err
	if e == nil || e.Stage != upstream.StageBody || !e.Committed() || !e.Sent() {
		t.Errorf("%+v", e)
	}
}

// closingEndpoint answers one request per connection and closes it on a signal,
// although it has promised to keep it.
func closingEndpoint(t *testing.T) (addr string, closeIdle chan struct{}, closed chan struct{}, served *[]string) {
	closeIdle, closed = make(chan struct{}), make(chan struct{})
	served = new([]string)
	addr = rawEndpoint(t, func(n int, c *rawConn) {
		for {
			r, body := c.request()
			if r == nil {
				return
			}
			*served = append(*served, r.Method+" "+body)
			c.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			if n == 0 {
				<-closeIdle
				c.Close()
				close(closed)
				return
			}
		}
	})
	return
}

func TestStaleConnectionLosesNoRequest(t *testing.T) {
	for _, what := range []string{"POST", "POST without a body", "GET"} {
		method, empty := strings.CutSuffix(what, " without a body")
		addr, closeIdle, closed, served := closingEndpoint(t)
		in := startIngress(t, newPool(t, upstream.Config{Address: addr}), nil)
		for i := range 2 {
			req, _ := http.NewRequest(method, in.url, nil)
			if method == "POST" && !empty {
				req, _ = http.NewRequest(method, in.url, strings.NewReader("hello"))
			}
			resp, err := in.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if string(body) != "ok" {
				t.Errorf("%s: %d %q", what, resp.StatusCode, body)
			}
			if out := within(t, in.outcomes, "outcome"); out.err != nil || out.res.Reused {
				t.Errorf("%s: %+v %v", what, out.res, out.err)
			}
			if i == 0 {
				close(closeIdle)
				<-closed
			}
		}
		if len(*served) != 2 {
			t.Errorf("%s: served %q", what, *served)
		}
	}
}

func TestOnlyRepeatableRequestsAreSentAgain(t *testing.T) {
	for asked, again := range map[string]bool{"GET": true, "DELETE": true, "POST": false, "PATCH": false, "GET once": false} {
		method, once := strings.CutSuffix(asked, " once")
		addr := rawEndpoint(t, func(n int, c *rawConn) {
			for i := 0; ; i++ {
				r, _ := c.request()
				if r == nil || n == 0 && i == 1 { // took it, and died
					return
				}
				c.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			}
		})
		in := startIngress(t, newPool(t, upstream.Config{Address: addr}), func(*http.Request) upstream.Options { return upstream.Options{Once: once} })
		in.get(t, "/")
		within(t, in.outcomes, "outcome")
		req, _ := http.NewRequest(method, in.url, nil)
		resp, err := in.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		out := within(t, in.outcomes, "outcome")
		if again && (out.err != nil || out.res.Reused) {
			t.Errorf("%s: %+v %v, want an answer over a new connection", asked, out.res, out.err)
		}
		if !again && (out.err == nil || !out.err.Sent() || !out.err.Stale() || out.err.Committed()) {
			t.Errorf("%s: %+v, want a stale connection to be told", asked, out.err)
		}
	}
}

func TestUnaskedBytesOnAnIdleConnectionAreNoAnswer(t *testing.T) {
	for _, body := range []string{"", "x"} {
		spoken := make(chan struct{})
		idle := make(chan struct{})
		addr := rawEndpoint(t, func(n int, c *rawConn) {
			for r, _ := c.request(); r != nil; r, _ = c.request() {
				c.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
				if n == 0 {
					<-idle
					c.say("HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
					close(spoken)
				}
			}
		})
		in := startIngress(t, newPool(t, upstream.Config{Address: addr}), nil)
		in.get(t, "/")
		within(t, in.outcomes, "the first outcome")
		close(idle)
		<-spoken
		resp, err := in.client.Post(in.url, "text/plain", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if out := within(t, in.outcomes, "the second outcome"); resp.StatusCode != 200 || out.res.Reused {
			t.Errorf("a body of %d bytes: the client got %d, %+v", len(body), resp.StatusCode, out.res)
		}
		if s := in.pool.Stats(); s.Reused != 0 || s.Dials != 2 {
			t.Errorf("a body of %d bytes: %+v", len(body), s)
		}
	}
}

func TestCancelledRequestClosesItsConnection(t *testing.T) {
	asked, closed := make(chan struct{}), make(chan struct{})
	addr := rawEndpoint(t, func(_ int, c *rawConn) {
		if r, _ := c.request(); r == nil {
			return
		}
		close(asked)
		c.untilClosed()
		close(closed)
	})
	in := startIngress(t, newPool(t, upstream.Config{Address: addr}), nil)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	req, _ := http.NewRequestWithContext(ctx, "GET", in.url, nil)
	if resp, err := in.client.Do(req); err == nil {
		resp.Body.Close()
		t.Error("an answer came from nowhere")
	}
	within(t, closed, "the connection's end")
	e := within(t, in.outcomes, "outcome").err
	if e == nil || !e.Client() || !errors.Is(e, context.Canceled) || e.Committed() {
		t.Errorf("%+v", e)
	}
}

func TestDeadlineEndsTheWait(t *testing.T) {
	for _, protocol := range []advertise.Protocol{advertise.HTTP1, advertise.H2C} {
		release := make(chan struct{})
		addr := httpEndpoint(t, func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-release:
			case <-r.Context().Done():
			}
		})
		limit := 30 * time.Millisecond
		in := startIngress(t, newPool(t, upstream.Config{Address: addr, Protocol: protocol}), func(*http.Request) upstream.Options {
			return upstream.Options{Deadline: time.Now().Add(limit)}
		})
		in.get(t, "/")
		e := within(t, in.outcomes, "outcome").err
		for e != nil && e.Stage != upstream.StageHead && limit < 10*time.Second { // the machine took all the time for the dial
			limit *= 2
			in.get(t, "/")
			e = within(t, in.outcomes, "outcome").err
		}
		if e == nil || !e.Timeout() || e.Client() || e.Stage != upstream.StageHead {
			t.Errorf("%s: %+v", protocol, e)
		}
		close(release)
	}
}

func TestAStreamOutlivesTheDeadlineOfItsHead(t *testing.T) {
	for _, protocol := range []advertise.Protocol{advertise.HTTP1, advertise.H2C} {
		stream := func(limit time.Duration) (body string, err *upstream.Fault) {
			passed := make(chan struct{})
			addr := httpEndpoint(t, func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, "first ")
				_ = http.NewResponseController(w).Flush()
				<-passed
				_, _ = io.WriteString(w, "second")
			})
			in := startIngress(t, newPool(t, upstream.Config{Address: addr, Protocol: protocol}), func(*http.Request) upstream.Options {
				deadline := time.Now().Add(limit)
				time.AfterFunc(time.Until(deadline.Add(50*time.Millisecond)), func() { close(passed) })
				return upstream.Options{Deadline: deadline}
			})
			_, body = in.get(t, "/")
			return body, within(t, in.outcomes, "outcome").err
		}
		limit := 500 * time.Millisecond
		body, err := stream(limit)
		for err != nil && err.Timeout() && !err.Committed() && limit < 5*time.Second { // the machine took all the time for the head
			limit *= 2
			body, err = stream(limit)
		}
		if err != nil || body != "first second" {
			t.Errorf("%s: %q %v", protocol, body, err)
		}
	}
}

func TestDeadlineOfOneRequestSparesTheNext(t *testing.T) {
	addr := rawEndpoint(t, func(_ int, c *rawConn) {
		for r, _ := c.request(); r != nil; r, _ = c.request() {
			c.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
	})
	limit := 500 * time.Millisecond // of a request, 0 for none
	var deadline time.Time
	in := startIngress(t, newPool(t, upstream.Config{Address: addr}), func(*http.Request) upstream.Options {
		if limit == 0 {
			return upstream.Options{}
		}
		deadline = time.Now().Add(limit)
		return upstream.Options{Deadline: deadline}
	})
	in.get(t, "/")
	first := within(t, in.outcomes, "outcome")
	for first.err != nil && first.err.Timeout() && limit < 5*time.Second { // the machine took all the time for the first request
		limit *= 2
		in.get(t, "/")
		first = within(t, in.outcomes, "outcome")
	}
	if first.err != nil {
		t.Fatal(first.err)
	}
	<-time.After(time.Until(deadline))
	limit = 0
	in.get(t, "/")
	if out := within(t, in.outcomes, "outcome"); out.err != nil || !out.res.Reused {
		t.Errorf("%+v %v", out.res, out.err)
	}
}

func TestClientThatBreaksOffItsUploadIsToBlame(t *testing.T) {
	for _, protocol := range []advertise.Protocol{advertise.HTTP1, advertise.H2C} {
		addr := httpEndpoint(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.ReadAll(r.Body) })
		in := startIngress(t, newPool(t, upstream.Config{Address: addr, Protocol: protocol}), nil)
		c, err := net.Dial("tcp", in.addr)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n%s", strings.Repeat("x", 100000))
		c.Close()
		if e := within(t, in.outcomes, "outcome").err; e == nil || !e.Client() || e.Committed() {
			t.Errorf("%s: %+v", protocol, e)
		}
	}
}

func TestSlowClientGetsEverything(t *testing.T) {
	const size = 4 << 20
	addr := rawEndpoint(t, func(_ int, c *rawConn) {
		if r, _ := c.request(); r != nil {
			c.say(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", size))
			_, _ = c.Write(bytes.Repeat([]byte("x"), size))
			c.untilClosed()
		}
	})
	in := startIngress(t, newPool(t, upstream.Config{Address: addr}), nil)
	resp, err := in.client.Get(in.url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	buf, n := make([]byte, 4096), 0
	for err == nil {
		var m int
		m, err = resp.Body.Read(buf)
		n += m
	}
	if err != io.EOF || n != size {
		t.Errorf("%d bytes, %v", n, err)
	}
}

func TestCloseLetsRequestsInFlightFinish(t *testing.T) {
	for _, protocol := range []advertise.Protocol{advertise.HTTP1, advertise.H2C} {
		asked, answer := make(chan struct{}), make(chan struct{})
		addr := httpEndpoint(t, func(w http.ResponseWriter, _ *http.Request) {
			close(asked)
			<-answer
			_, _ = io.WriteString(w, "late")
		})
		in := startIngress(t, newPool(t, upstream.Config{Address: addr, Protocol: protocol}), nil)
		got := make(chan string, 1)
		go func() {
			resp, err := in.client.Get(in.url)
			if err != nil {
				got <- err.Error()
				return
			}
			defer resp.Body.Close()
			b, _ := io.ReadAll(resp.Body)
			got <- string(b)
		}()
		<-asked
		in.pool.Close()
		in.pool.Close()
		in.get(t, "/") // refused
		if e := within(t, in.outcomes, "outcome").err; e == nil || !errors.Is(e, upstream.ErrClosed) || e.Sent() {
			t.Errorf("%s: %+v", protocol, e)
		}
		close(answer)
		if body := within(t, got, "the answer"); body != "late" {
			t.Errorf("%s: %q", protocol, body)
		}
		if err := in.pool.Drain(t.Context()); err != nil {
			t.Error(err)
		}
		if s := in.pool.Stats(); s.Open != 0 || s.InFlight != 0 {
			t.Errorf("%s: stats %+v", protocol, s)
		}
	}
}

func TestDrainCutsOffWhatDoesNotEnd(t *testing.T) {
	for _, protocol := range []advertise.Protocol{advertise.HTTP1, advertise.H2C} {
		asked := make(chan struct{})
		addr := httpEndpoint(t, func(_ http.ResponseWriter, r *http.Request) {
			close(asked)
			<-r.Context().Done()
		})
		in := startIngress(t, newPool(t, upstream.Config{Address: addr, Protocol: protocol}), nil)
		go func() {
			if resp, err := in.client.Get(in.url); err == nil {
				resp.Body.Close()
			}
		}()
		<-asked
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := in.pool.Drain(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: Drain: %v", protocol, err)
		}
		if e := within(t, in.outcomes, "outcome").err; e == nil || e.Client() {
			t.Errorf("%s: %+v", protocol, e)
		}
	}
}

func TestIdleConnectionsAreClosedButForTheWarmOne(t *testing.T) {
	release := make(chan struct{})
	arrived := make(chan struct{}, 3)
	ended := make(chan struct{}, 3)
	addr := rawEndpoint(t, func(_ int, c *rawConn) {
		if r, _ := c.request(); r == nil {
			return
		}
		arrived <- struct{}{}
		<-release
		c.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		c.untilClosed()
		ended <- struct{}{}
	})
	in := startIngress(t, newPool(t, upstream.Config{Address: addr, IdleTimeout: 20 * time.Millisecond}), nil)
	for range 3 {
		go func() {
			if resp, err := in.client.Get(in.url); err == nil {
				resp.Body.Close()
			}
		}()
	}
	for range 3 {
		within(t, arrived, "the requests")
	}
	close(release)
	for range 3 {
		within(t, in.outcomes, "the outcomes")
	}
	for range 2 {
		within(t, ended, "the idle connections' end")
	}
	if s := in.pool.Stats(); s.Open != 1 || s.Idle != 1 {
		t.Errorf("stats %+v: want one warm connection", s)
	}
}
