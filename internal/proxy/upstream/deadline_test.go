package upstream_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/proxy/upstream"
)

// trickle sends a request whose body takes longer than the deadline, and returns the
// status of its answer.
func trickle(t *testing.T, addr, framing string, chunk func(i int) string) int {
	t.Helper()
	conn := dial(t, addr, "POST / HTTP/1.1\r\nHost: a\r\n"+framing+"\r\n\r\n")
	for i := range trickled {
		time.Sleep(short / 10) // is slow
		if _, err := io.WriteString(conn, chunk(i)); err != nil {
			t.Fatal(err)
		}
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode
}

const trickled = 15

func TestARequestWhoseBodyMovesIsNotCutByTheDeadline(t *testing.T) {
	t.Parallel()
	bodies := map[string]struct {
		framing string
		chunk   func(int) string
	}{
		"small": {fmt.Sprintf("Content-Length: %d", trickled), func(int) string { return "x" }},
		"large": {fmt.Sprintf("Content-Length: %d", trickled*4096), func(int) string { return strings.Repeat("x", 4096) }},
		"of unknown length": {"Transfer-Encoding: chunked", func(i int) string {
			if i == trickled-1 {
				return "0\r\n\r\n"
			}
			return "1\r\nx\r\n"
		}},
	}
	for _, protocol := range []advertise.Protocol{advertise.HTTP1, advertise.H2C} {
		for name, body := range bodies {
			t.Run(string(protocol)+": "+name, func(t *testing.T) {
				t.Parallel()
				addr := httpEndpoint(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
				in := startIngress(t, newPool(t, upstream.Config{Address: addr, Protocol: protocol}), func(*http.Request) upstream.Options {
					return upstream.Options{Deadline: time.Now().Add(short), AfterBody: short}
				})
				if status := trickle(t, in.addr, body.framing, body.chunk); status != http.StatusOK {
					t.Errorf("status %d", status)
				}
				if out := within(t, in.outcomes, "the end of the exchange"); out.err != nil {
					t.Error(out.err)
				}
			})
		}
	}
}

func TestTheDeadlineCountsFromTheEndOfTheBodyAndNoLaterThanTheLatest(t *testing.T) {
	t.Parallel()
	for _, protocol := range []advertise.Protocol{advertise.HTTP1, advertise.H2C} {
		for _, size := range []int{10, 64 << 10} {
			for name, latest := range map[string]time.Duration{"after the body": 0, "the latest": short + short/2} {
				t.Run(fmt.Sprintf("%s: %d bytes: %s", protocol, size, name), func(t *testing.T) {
					t.Parallel()
					addr := httpEndpoint(t, func(_ http.ResponseWriter, r *http.Request) {
						_, _ = io.Copy(io.Discard, r.Body)
						<-r.Context().Done()
					})
					in := startIngress(t, newPool(t, upstream.Config{Address: addr, Protocol: protocol}), func(*http.Request) upstream.Options {
						x := upstream.Options{Deadline: time.Now().Add(short / 2), AfterBody: short}
						if latest > 0 {
							x.AfterBody, x.Latest = time.Hour, time.Now().Add(latest)
						}
						return x
					})
					resp, err := in.client.Post(in.url, "text/plain", strings.NewReader(strings.Repeat("x", size)))
					if err != nil {
						t.Fatal(err)
					}
					_ = resp.Body.Close()
					if out := within(t, in.outcomes, "the end of the exchange"); out.err == nil || !out.err.Timeout() || out.err.Client() {
						t.Error(out.err)
					}
				})
			}
		}
	}
}

// Which timer fires first must not decide the text of the error.
func TestADialThatRanOutOfItsOwnTimeReportsIt(t *testing.T) {
	t.Parallel()
	dials := map[string]func(context.Context, string, string) (net.Conn, error){
		"the context ends it": func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
		"its own timer ends it": func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Err: context.DeadlineExceeded}
		},
	}
	for _, protocol := range []advertise.Protocol{advertise.HTTP1, advertise.H2C} {
		for name, dial := range dials {
			pool := newPool(t, upstream.Config{Address: "192.0.2.1:80", Protocol: protocol, DialTimeout: 20 * time.Millisecond, Dial: dial})
			deadline := time.Now().Add(time.Hour)
			in := startIngress(t, pool, func(*http.Request) upstream.Options { return upstream.Options{Deadline: deadline} })
			in.get(t, "/")
			e := within(t, in.outcomes, "the outcome").err
			if e == nil || e.Stage != upstream.StageDial || e.Timeout() || e.Client() || !strings.Contains(e.Error(), "no connection within 20ms") {
				t.Errorf("%s, %s: %v", protocol, name, e)
			}
			deadline = time.Now().Add(time.Millisecond)
			in.get(t, "/")
			if e := within(t, in.outcomes, "the outcome").err; e == nil || !e.Timeout() || e.Client() || e.Sent() {
				t.Errorf("%s, %s, the request's deadline is first: %v", protocol, name, e)
			}
		}
	}
}

func TestAnAbandonedRequestEndsImmediatelyUnlessItsAnswerHasBegun(t *testing.T) {
	for _, protocol := range []advertise.Protocol{advertise.HTTP1, advertise.H2C} {
		asked, finish := make(chan struct{}, 2), make(chan struct{})
		addr := httpEndpoint(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/begun" {
				_ = http.NewResponseController(w).Flush()
			}
			asked <- struct{}{}
			select {
			case <-finish:
			case <-r.Context().Done():
			}
		})
		pool := newPool(t, upstream.Config{Address: addr, Protocol: protocol})
		in := startIngress(t, pool, nil)
		begun, err := in.client.Get(in.url + "/begun")
		if err != nil {
			t.Fatal(err)
		}
		within(t, asked, "the first request")
		go func() {
			if resp, err := in.client.Get(in.url + "/waits"); err == nil {
				_ = resp.Body.Close()
			}
		}()
		within(t, asked, "the second request")
		pool.Abandon()
		if out := within(t, in.outcomes, "the end of the second"); out.err == nil || !errors.Is(out.err, upstream.ErrAbandoned) || !out.err.Sent() || out.err.Timeout() || out.err.Client() || out.err.Committed() {
			t.Errorf("%s: %v", protocol, out.err)
		}
		close(finish)
		if _, err := io.Copy(io.Discard, begun.Body); err != nil {
			t.Errorf("%s: %v", protocol, err)
		}
		_ = begun.Body.Close()
		if out := within(t, in.outcomes, "the end of the first"); out.err != nil {
			t.Errorf("%s: an answer that has begun: %v", protocol, out.err)
		}
	}
}
