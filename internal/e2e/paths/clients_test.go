package paths

import (
	"fmt"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/procs"
	"golang.org/x/net/http2"
)

// A client that has sent its whole request may close its direction, and still reads.
func TestAClientThatHalfClosesGetsTheAnswerOfTheServiceOrNone(t *testing.T) {
	everyWay(t, func(t *testing.T, w *way) {
		for range 20 {
			c := w.dial(t)
			c.say("GET /own HTTP/1.1\r\nHost: a\r\nRingway-Service: odd\r\n\r\n")
			_ = c.CloseWrite()
			if got := c.ended(); got != "" && (!strings.HasPrefix(got, "HTTP/1.1 200 ") || !strings.HasSuffix(got, "\r\n\r\nown")) {
				t.Fatalf("answered %q", got)
			}
		}
	})
}

// Within a second, half of them at least: a busy machine delays some. A body of a known length may
// come with the head.
func TestADepartingClientIsReportedToTheServiceAfterItsWholeBody(t *testing.T) {
	everyWay(t, func(t *testing.T, w *way) {
		var took []time.Duration
		large := strings.Repeat("x", 100<<10)
		for name, request := range map[string]string{
			"no body":          "GET %s HTTP/1.1\r\nHost: a\r\nRingway-Service: odd\r\n\r\n",
			"small":            "POST %s HTTP/1.1\r\nHost: a\r\nRingway-Service: odd\r\nContent-Length: 3\r\n\r\nabc",
			"small, in pieces": "PUT %s HTTP/1.1\r\nHost: a\r\nRingway-Service: odd\r\nContent-Length: 3\r\n\r\n\x00ab\x00c",
			"large":            "POST %s HTTP/1.1\r\nHost: a\r\nRingway-Service: odd\r\nContent-Length: 102400\r\n\r\n" + large,
			"chunked":          "POST %s HTTP/1.1\r\nHost: a\r\nRingway-Service: odd\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		} {
			for _, path := range []string{"/waiting", "/events"} {
				c := w.dial(t)
				for piece := range strings.SplitSeq(fmt.Sprintf(request, path), "\x00") {
					c.say("%s", piece)
				}
				within(t, w.service.waits, name+": the request to arrive")
				if path == "/events" {
					if resp, err := http.ReadResponse(c.in, nil); err != nil || resp.StatusCode != http.StatusOK {
						t.Fatal(resp, err)
					}
				}
				closed := time.Now()
				_ = c.Close()
				within(t, w.service.left, name+", "+path+": the end of the request to reach the service")
				took = append(took, time.Since(closed))
			}
		}
		slices.Sort(took)
		t.Log(took)
		if half := took[len(took)/2]; half > time.Second {
			t.Errorf("half of the departures took longer than %v", half)
		}
	})
}

// within fails the test if ch gives nothing. The bound is shorter than the time of a request.
func within(t *testing.T, ch <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(patience / 2):
		t.Fatalf("%s: waited in vain", what)
	}
}

func TestADownloadThatMovesOutlivesTheTimeOfARequest(t *testing.T) {
	everyWay(t, func(t *testing.T, w *way) {
		c := w.dial(t)
		c.say("GET /drip HTTP/1.1\r\nHost: a\r\nRingway-Service: brief\r\n\r\n")
		if resp, body, err := c.answer("GET"); err != nil || resp.StatusCode != http.StatusOK || len(body) != 20 {
			t.Errorf("%v %q, %v", resp.StatusCode, body, err)
		}
	})
}

func TestStreamsWithoutAWindowHoldNoPlaceForLong(t *testing.T) {
	everyWay(t, func(t *testing.T, w *way) {
		const streams = 8 // more would need more connections than a busy machine opens in the time of a request
		f := w.frames(t)
		f.service = "brief"
		_ = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		for n := range uint32(streams) {
			f.request(t, 2*n+1, true, "GET", "/large")
		}
		for reset := 0; reset < streams; {
			frame, err := f.ReadFrame()
			if err != nil {
				t.Fatalf("%d of %d streams were reset: %v", reset, streams, err)
			}
			if _, ok := frame.(*http2.RSTStreamFrame); ok {
				reset++
			}
		}
		procs.Await(t, "the requests to end", func() bool { return w.inFlight(t, "brief") == 0 })
	})
}

// Relays, sidecar and service run in this process, so its goroutines and descriptors are theirs.
func TestDepartedClientsOfASilentServiceLeaveNothingBehind(t *testing.T) {
	everyWay(t, func(t *testing.T, w *way) {
		held := func() (goroutines, files int) {
			dir, err := os.ReadDir("/proc/self/fd")
			if err != nil && runtime.GOOS == "linux" {
				t.Fatal(err)
			}
			return runtime.NumGoroutine(), len(dir)
		}
		const clients, spare = 100, 30 // spare: kept connections, and what the fleet does meanwhile
		goroutines, files := held()
		for _, body := range []string{"\r\n", "Expect: 100-continue\r\nContent-Length: 10\r\n\r\n", "Content-Length: 10\r\n\r\nabc"} {
			var all []*client
			for range clients {
				c := w.dial(t)
				c.say("POST /silent HTTP/1.1\r\nHost: a\r\nRingway-Service: odd\r\n%s", body)
				all = append(all, c)
			}
			procs.Await(t, "all requests to be in flight", func() bool { return w.inFlight(t, "odd") >= clients })
			for _, c := range all {
				_ = c.Close()
			}
			procs.Await(t, "what they held to be free", func() bool {
				g, f := held()
				return w.inFlight(t, "odd") == 0 && g <= goroutines+spare && f <= files+spare
			})
		}
	})
}

func TestNoClientPretendsToBeAProxy(t *testing.T) {
	everyWay(t, func(t *testing.T, w *way) {
		for _, name := range []string{"Forwarded", "X-Real-Ip", "X-Forwarded-For", "X-Forwarded-Prefix", "X_Forwarded_For", "X-Forwarded_For", "X_Real_Ip", "x_forwarded-proto", "True-Client-Ip", "Cf-Connecting-Ip", "true_client_ip"} {
			c := w.dial(t)
			c.say("GET /ok HTTP/1.1\r\nHost: a\r\nRingway-Service: odd\r\n%s: pretended-%s\r\n\r\n", name, name)
			if resp, body, err := c.answer("GET"); err != nil || body != "ok" {
				t.Errorf("%s: %v %q, %v", name, resp.StatusCode, body, err)
			}
			f := w.frames(t)
			f.request(t, 1, true, "GET", "/ok", strings.ToLower(name), "pretended-"+name)
			if status, _, reset := f.answer(t, 1, ""); status != "200" || reset {
				t.Errorf("%s over HTTP/2: %s, reset %v", name, status, reset)
			}
			if w.service.got("pretended-" + name) {
				t.Errorf("the service got %s of a client", name)
			}
		}
	})
}

func TestARequestThatNamesTwoServicesOrIsForAnotherProtocolReachesNone(t *testing.T) {
	everyWay(t, func(t *testing.T, w *way) {
		f := w.frames(t)
		for i, r := range []struct {
			line   string // of HTTP/1.1; its target is that over HTTP/2 if it is a path
			more   string // a second value of Ringway-Service
			status int
		}{
			{"GET /two-services HTTP/1.1", "other", http.StatusBadRequest},
			{"POST /one-service-twice HTTP/1.1", "odd", http.StatusBadRequest},
			{"GET ftp://a/file HTTP/1.1", "", http.StatusBadRequest},
			{"TRACE /trace HTTP/1.1", "", http.StatusMethodNotAllowed},
		} {
			w.service.forget()
			method, target, _ := strings.Cut(strings.TrimSuffix(r.line, " HTTP/1.1"), " ")
			more, fields := "", []string(nil)
			if r.more != "" {
				more, fields = "Ringway-Service: "+r.more+"\r\n", []string{"ringway-service", r.more}
			}
			c := w.dial(t)
			c.say("%s\r\nHost: a\r\nRingway-Service: odd\r\n%s\r\n", r.line, more)
			if resp, body, err := c.answer(method); err != nil || resp.StatusCode != r.status {
				t.Errorf("%s: %v %q, %v", r.line, resp, body, err)
			}
			if target[0] == '/' {
				f.request(t, uint32(2*i+1), true, method, target+"-2", fields...)
				if status, _, reset := f.answer(t, uint32(2*i+1), ""); status != fmt.Sprint(r.status) || reset {
					t.Errorf("%s over HTTP/2: %s, reset %v", r.line, status, reset)
				}
			}
			if w.service.got(target) || w.service.got("/file") {
				t.Errorf("the service got %s", r.line)
			}
		}
	})
}

func TestTheFleetIsOneStepOfMaxForwards(t *testing.T) {
	everyWay(t, func(t *testing.T, w *way) {
		c, f := w.dial(t), w.frames(t)
		for i, r := range []struct {
			method, value string
			status        int
			want          string // what the service gets; empty if nothing
		}{
			{"OPTIONS", "0", http.StatusNoContent, ""},
			{"TRACE", "0", http.StatusMethodNotAllowed, ""},
			{"OPTIONS", "1", http.StatusOK, "0"},
			{"TRACE", "20", http.StatusMethodNotAllowed, ""},
			{"OPTIONS", "none", http.StatusOK, "none"},
			{"GET", "0", http.StatusOK, "0"}, // counts for the two methods only
		} {
			w.service.forget()
			path := fmt.Sprintf("/forwards-%d", i)
			c.say("%s %s HTTP/1.1\r\nHost: a\r\nRingway-Service: odd\r\nMax-Forwards: %s\r\n\r\n", r.method, path, r.value)
			if resp, body, err := c.answer(r.method); err != nil || resp.StatusCode != r.status {
				t.Errorf("%s with %s: %v %q, %v", r.method, r.value, resp.StatusCode, body, err)
			}
			f.request(t, uint32(2*i+1), true, r.method, path+"-2", "max-forwards", r.value)
			if status, _, reset := f.answer(t, uint32(2*i+1), ""); status != fmt.Sprint(r.status) || reset {
				t.Errorf("%s with %s over HTTP/2: %s, reset %v", r.method, r.value, status, reset)
			}
			if want := r.want != ""; w.service.got(path) != want || w.service.got(path+"-2") != want || want && w.service.count("Max-Forwards: "+r.want+"\r\n") != 2 {
				t.Errorf("%s with %s: the service did not get %q", r.method, r.value, r.want)
			}
		}
	})
}

func TestCallsOfGRPCGetAStatusOfGRPCForTheFailuresOfRelays(t *testing.T) {
	everyWay(t, func(t *testing.T, w *way) {
		before := w.failures(t)
		defer func() { w.faults = w.failuresSince(t, before) }() // the service has failed, but how often is not what is tested
		for _, c := range []struct {
			service, path, status string
		}{{"nothing", "/", "12"}, {"odd", "/gone", "14"}, {"brief", "/silent", "4"}} {
			f := w.frames(t)
			f.service = c.service
			f.request(t, 1, true, "POST", c.path, "content-type", "application/grpc", "te", "trailers")
			if status, got, reset := f.answer(t, 1, "grpc-status"); status != "200" || got != c.status || reset {
				t.Errorf("%s: HTTP %s, gRPC %q, reset %v", fmt.Sprint(c.service, c.path), status, got, reset)
			}
		}
	})
}

// A reset would be INTERNAL to clients of gRPC, which they do not repeat. Any other client must
// see that the answer is not whole.
func TestACallWhoseServiceGoesWithinTheAnswerIsUnavailable(t *testing.T) {
	everyWay(t, func(t *testing.T, w *way) {
		for path, want := range map[string]string{"/call-cut": "200 over h2c, then 14", "/page-cut": "200 over h2c, then a reset"} {
			w.faults++
			f := w.frames(t)
			f.service = "h2c"
			f.request(t, 1, true, "POST", path, "content-type", "application/grpc", "te", "trailers")
			if got := f.whole(t, 1); got != want {
				t.Errorf("%s: %s, want %s", path, got, want)
			}
		}
	})
}
