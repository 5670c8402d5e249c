package ingress_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/logtest"
	"github.com/ringway/ringway/internal/memnet"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/selection"
)

// trial is a front whose handler is made for one test, and what it has counted.
type trial struct {
	*front
	registry *prometheus.Registry
	served   *ingress.Handler
	attempts atomic.Int64
}

// try serves with a limit of a minute and a full budget, unless changed. The backend
// gets the number of the attempt that it sees, from 1 on.
func try(t *testing.T, workers int, behind func(attempt int64, w http.ResponseWriter, r *http.Request), change func(*ingress.Config)) *trial {
	t.Helper()
	return tryOn(t, nil, workers, behind, change)
}

func tryOn(t *testing.T, host *memnet.Host, workers int, behind func(attempt int64, w http.ResponseWriter, r *http.Request), change func(*ingress.Config)) *trial {
	t.Helper()
	x := &trial{registry: prometheus.NewRegistry()}
	x.front = newFrontOn(t, host, workers, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { behind(x.attempts.Add(1), w, r) }))
	cfg := ingress.Config{
		Self: "r1", Services: one{x.Service}, Epoch: x.epoch, Requests: ingress.Requests{Timeout: time.Minute, MaxAttempts: 5, RetryBudget: 1, MaxInFlight: 100, ExposeRouteHeaders: true},
		Metrics: ingress.NewMetrics(x.registry), Logger: slog.New(slog.DiscardHandler),
	}
	change(&cfg)
	x.served = ingress.New(cfg)
	x.addr = x.serve(x.served)
	return x
}

// send returns the answer and its body; headers are "Name: value".
func (x *trial) send(method, body string, headers ...string) (*http.Response, string) {
	x.t.Helper()
	req, err := http.NewRequestWithContext(x.t.Context(), method, "http://"+x.addr, strings.NewReader(body))
	if err != nil {
		x.t.Fatal(err)
	}
	req.Header.Set(wire.ServiceHeader, "echo")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Add(name, value)
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: x.dial()}}).Do(req)
	if err != nil {
		x.t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		x.t.Fatal(err)
	}
	return resp, string(answer)
}

// count is a counter of the service with this label.
func (x *trial) count(name, label string) (n int) {
	x.t.Helper()
	for labels, value := range logtest.Series(x.t, x.registry, name) {
		if slices.Contains(strings.Split(labels, ","), label) {
			n += int(value)
		}
	}
	return n
}

// blamed is how often workers were picked, and how often they failed.
func (x *trial) blamed() (picks, failures int) {
	x.awaitInFlight(0)
	for _, s := range x.Endpoints.Stats(x.now()) {
		picks, failures = picks+int(s.Picks), failures+int(s.Failures)
	}
	return picks, failures
}

func hang(_ int64, _ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // or net/http does not see the client leave
	<-r.Context().Done()
}

func breakOff(int64, http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func TestAnAttemptThatTimedOutIsRetriedOnAnotherWorkerAndTheFirstBlamedOnce(t *testing.T) {
	t.Parallel()
	x := try(t, 3, func(n int64, w http.ResponseWriter, r *http.Request) {
		if n == 1 {
			hang(n, w, r)
		}
	}, func(c *ingress.Config) { c.AttemptTimeout = 2 * time.Second })
	resp, body := x.send("GET", "")
	if resp.StatusCode != http.StatusOK || resp.Header.Get(wire.AttemptsHeader) != "2" {
		t.Errorf("%s %v %s", resp.Status, resp.Header, body)
	}
	if picks, failures := x.blamed(); picks != 2 || failures != 1 {
		t.Errorf("%d picks and %d failures", picks, failures)
	}
	if n := x.count("ringway_relay_retries_total", "attempt_timeout"); n != 1 {
		t.Errorf("%d retries for that reason", n)
	}
}

// Cutting short what cannot go elsewhere would only make it fail.
func TestWhatNoOtherAttemptCanFollowHasAllTheTime(t *testing.T) {
	slow := func(_ int64, _ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		time.Sleep(300 * time.Millisecond) // is slow
	}
	for name, c := range map[string]struct {
		method, body string
		workers      int
		change       func(*ingress.Config)
	}{
		"it may not be repeated":        {"POST", "", 3, func(*ingress.Config) {}},
		"its body cannot be sent again": {"PUT", "x", 3, func(*ingress.Config) {}},
		"there is no other worker":      {"GET", "", 1, func(*ingress.Config) {}},
		"it is the last attempt":        {"GET", "", 3, func(c *ingress.Config) { c.MaxAttempts = 1 }},
		"retries are off":               {"GET", "", 3, func(c *ingress.Config) { c.RetryBudget = 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := try(t, c.workers, slow, func(cfg *ingress.Config) {
				cfg.AttemptTimeout = 30 * time.Millisecond
				c.change(cfg)
			})
			if resp, body := x.send(c.method, c.body); resp.StatusCode != http.StatusOK || resp.Header.Get(wire.AttemptsHeader) != "1" {
				t.Errorf("%s %s", resp.Status, body)
			}
		})
	}
}

func TestAnAttemptThatNoRetryCouldBePaidForHasAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slow atomic.Bool
		x := tryOn(t, inMemory(t), 3, func(n int64, w http.ResponseWriter, r *http.Request) {
			if !slow.Load() {
				breakOff(n, w, r)
			}
			time.Sleep(300 * time.Millisecond)
		}, func(c *ingress.Config) {
			c.RetryBudget, c.MaxAttempts, c.Timeout, c.AttemptTimeout = 0.001, 2, 5*time.Second, 100*time.Millisecond
		})
		const reserve = 500
		for range reserve {
			x.send("GET", "")
		}
		if made := x.count("ringway_relay_retries_total", "head"); made != reserve {
			t.Fatalf("%d retries, want the whole reserve", made)
		}
		slow.Store(true)
		if resp, body := x.send("GET", ""); resp.StatusCode != http.StatusOK || resp.Header.Get(wire.AttemptsHeader) != "1" {
			t.Errorf("with an empty budget: %s %s", resp.Status, body)
		}
		slow.Store(false)
		for range reserve { // each earns a thousandth of a retry
			x.send("POST", "")
		}
		slow.Store(true)
		x.send("GET", "")
		if cut := x.count("ringway_relay_retries_total", "attempt_timeout"); cut != 1 {
			t.Errorf("%d attempts are cut once a retry can be paid for again", cut)
		}
	})
}

func TestAClientsDeadlineEndsTheRequestAndBlamesNoWorker(t *testing.T) {
	for _, header := range []string{"Ringway-Timeout: 500", "Grpc-Timeout: 500m", "Grpc-Timeout: 500000u"} {
		synctest.Test(t, func(t *testing.T) {
			x := tryOn(t, inMemory(t), 3, hang, func(*ingress.Config) {})
			resp, body := x.send("POST", "x", header)
			if resp.StatusCode != http.StatusGatewayTimeout || !strings.Contains(body, `"code":"timeout"`) || !strings.Contains(body, "within 500ms") {
				t.Errorf("%s: %s %s", header, resp.Status, body)
			}
			if picks, failures := x.blamed(); picks != 1 || failures != 0 {
				t.Errorf("%s: %d picks and %d failures", header, picks, failures)
			}
		})
	}
	// It shortens attempts alike, so that there is time for another.
	synctest.Test(t, func(t *testing.T) {
		x := tryOn(t, inMemory(t), 3, func(n int64, w http.ResponseWriter, r *http.Request) {
			if n == 1 {
				hang(n, w, r)
			}
		}, func(c *ingress.Config) { c.AttemptTimeout = 20 * time.Second })
		if resp, body := x.send("GET", "", "Ringway-Timeout: 3000"); resp.StatusCode != http.StatusOK || resp.Header.Get(wire.AttemptsHeader) != "2" {
			t.Errorf("%s %s", resp.Status, body)
		}
		if _, failures := x.blamed(); failures != 0 {
			t.Errorf("%d failures: the worker had less time than this relay gives", failures)
		}
	})
}

func TestADeadlineThatIsOverOrMalformedIsRefusedWithoutAnAttempt(t *testing.T) {
	x := try(t, 1, func(int64, http.ResponseWriter, *http.Request) {}, func(*ingress.Config) {})
	for header, status := range map[string]int{
		"Ringway-Timeout: 0": http.StatusGatewayTimeout, "Grpc-Timeout: 0n": http.StatusGatewayTimeout,
		"Ringway-Timeout: -1": http.StatusBadRequest, "Ringway-Timeout: 1s": http.StatusBadRequest, "Ringway-Timeout: ": http.StatusBadRequest,
		"Ringway-Timeout: 1234567890": http.StatusBadRequest, "Ringway-Timeout: 1.5": http.StatusBadRequest,
	} {
		if resp, body := x.send("GET", "", header); resp.StatusCode != status {
			t.Errorf("%s: %s %s", header, resp.Status, body)
		}
	}
	if resp, body := x.send("GET", "", "Ringway-Timeout: 100", "Ringway-Timeout: 100"); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("two of them: %s %s", resp.Status, body)
	}
	if picks, _ := x.blamed(); picks != 0 {
		t.Errorf("%d attempts", picks)
	}
	if n := x.count("ringway_relay_rejections_total", "timeout"); n != 2 {
		t.Errorf("%d rejections counted as timeout", n)
	}
}

func TestWhatIsLeftOfAClientsDeadlineIsPassedOn(t *testing.T) {
	seen := make(chan http.Header, 1)
	x := try(t, 1, func(_ int64, _ http.ResponseWriter, r *http.Request) { seen <- r.Header }, func(*ingress.Config) {})
	for _, c := range []struct {
		headers   []string
		own, grpc bool
		unchanged string
	}{
		{headers: nil},
		{headers: []string{"Ringway-Timeout: 50000"}, own: true},
		{headers: []string{"Grpc-Timeout: 50S"}, own: true, grpc: true},
		{headers: []string{"Grpc-Timeout: 50S", "Ringway-Timeout: 90000000"}, own: true, grpc: true},
		{headers: []string{"Grpc-Timeout: 99999999H", "Ringway-Timeout: 50000"}, own: true, grpc: true},
		{headers: []string{"Grpc-Timeout: soon"}, unchanged: "soon"},
	} {
		x.send("GET", "", c.headers...)
		h := <-seen
		own, grpc := h.Get("Ringway-Timeout"), h.Get("Grpc-Timeout")
		if ms, _ := strconv.Atoi(own); c.own != (ms > 0 && ms <= 50_000) || !c.own && own != "" {
			t.Errorf("%v: Ringway-Timeout %q", c.headers, own)
		}
		switch us, _ := strconv.Atoi(strings.TrimSuffix(grpc, "u")); {
		case c.grpc != (us > 0 && us <= 50_000_000):
			t.Errorf("%v: grpc-timeout %q", c.headers, grpc)
		case !c.grpc && grpc != c.unchanged:
			t.Errorf("%v: grpc-timeout %q", c.headers, grpc)
		}
	}
}

func TestNoMoreEndpointsAreTriedThanAllowed(t *testing.T) {
	for _, most := range []int{1, 2, 3} {
		x := try(t, 5, breakOff, func(c *ingress.Config) { c.MaxAttempts = most })
		if resp, body := x.send("GET", ""); resp.StatusCode != http.StatusBadGateway || strings.Count(body, `"endpoint"`) != most {
			t.Errorf("%d allowed: %s %s", most, resp.Status, body)
		}
		if picks, failures := x.blamed(); picks != most || failures != most {
			t.Errorf("%d allowed: %d picks, %d failures", most, picks, failures)
		}
	}
}

func TestRetriesEndWithTheirBudget(t *testing.T) {
	x := try(t, 5, breakOff, func(c *ingress.Config) { c.RetryBudget = 0 })
	x.send("GET", "")
	if picks, _ := x.blamed(); picks != 1 || x.count("ringway_relay_retries_total", "no_budget") != 1 {
		t.Errorf("no budget: %d picks, %d retries not made", picks, x.count("ringway_relay_retries_total", "no_budget"))
	}
	const requests, reserve = 700, 500
	x = try(t, 5, breakOff, func(c *ingress.Config) { c.RetryBudget, c.MaxAttempts = 0.01, 2 })
	for range requests {
		x.send("GET", "")
	}
	made, refused := x.count("ringway_relay_retries_total", "head"), x.count("ringway_relay_retries_total", "no_budget")
	if made < reserve || made > reserve+requests/100+1 || made+refused != requests {
		t.Errorf("%d retries and %d not made, of %d requests", made, refused, requests)
	}
}

func TestRequestsThatTheRelayRefusesPayForNoRetry(t *testing.T) {
	x := try(t, 5, breakOff, func(c *ingress.Config) { c.RetryBudget, c.MaxAttempts = 0.2, 2 })
	made := func() int { return x.count("ringway_relay_retries_total", "head") }
	for before := -1; before != made(); { // until nothing is left of the reserve
		before = made()
		x.send("GET", "")
	}
	spent := made()
	for range 1000 {
		if resp, _ := x.send("GET", "", wire.TimeoutHeader+": 0"); resp.StatusCode != http.StatusGatewayTimeout {
			t.Fatal(resp.Status)
		}
	}
	for range 20 {
		x.send("GET", "")
	}
	if again := made() - spent; again > 5 {
		t.Errorf("%v retries of 20 requests", again)
	}
}

// both offers two services.
type both [2]*routing.Service

func (b both) Service(name string) (*routing.Service, bool) {
	for _, s := range b {
		if s.Name == name {
			return s, true
		}
	}
	return nil, false
}

func TestAServiceThatFailsTakesTheRetriesOfNoOther(t *testing.T) {
	other, err := routing.NewService("other", selection.DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	var once atomic.Bool
	x := try(t, 3, func(n int64, w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/other" || once.CompareAndSwap(false, true) {
			breakOff(n, w, r)
		}
	}, func(c *ingress.Config) {
		c.RetryBudget, c.Services = 0.01, both{c.Services.(one).service, other}
	})
	if err := other.SetRoute(x.Route(), 0); err != nil {
		t.Fatal(err)
	}
	for range 650 {
		x.send("GET", "")
	}
	if refused := x.count("ringway_relay_retries_total", "no_budget"); refused == 0 {
		t.Fatal("the budget of the first service is not spent")
	}
	req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+x.addr+"/other", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(wire.ServiceHeader, "other")
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || resp.Header.Get(wire.AttemptsHeader) != "2" {
		t.Errorf("the other service: %s after %s attempts", resp.Status, resp.Header.Get(wire.AttemptsHeader))
	}
}

// The budget bounds the work that retries cost. A worker that is not there does none.
func TestAConnectionThatIsRefusedCostsNoBudget(t *testing.T) {
	x := try(t, 1, breakOff, func(c *ingress.Config) { c.RetryBudget, c.MaxAttempts = 0.001, 3 })
	route := &routing.Route{}
	addr := procs.Refusing(t)
	for i := range 3 {
		pool, err := upstream.NewPool(upstream.Config{Address: addr})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		node := fmt.Sprintf("dead%d", i)
		route.Range = append(route.Range, &routing.Target{ID: node + ".1", Node: node, Address: addr, Weight: 1, Pool: pool})
	}
	if err := x.SetRoute(route, 0); err != nil {
		t.Fatal(err)
	}
	const requests = 300 // 500 retries are saved up
	for range requests {
		x.send("POST", "")
	}
	if made, refused := x.count("ringway_relay_retries_total", "dial"), x.count("ringway_relay_retries_total", "no_budget"); made != 2*requests || refused != 0 {
		t.Errorf("%d retries and %d not made, of %d requests with three workers that are not there", made, refused, requests)
	}
}

func TestAClientThatLeavesBlamesNoWorkerAndIsNotTriedElsewhere(t *testing.T) {
	asked := make(chan struct{}, 5)
	x := try(t, 5, func(n int64, w http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		hang(n, w, r)
	}, func(*ingress.Config) {})
	ctx, leave := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+x.addr, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(wire.ServiceHeader, "echo")
	left := make(chan error, 1)
	go func() {
		_, err := http.DefaultClient.Do(req)
		left <- err
	}()
	<-asked
	leave()
	<-left
	if picks, failures := x.blamed(); picks != 1 || failures != 0 {
		t.Errorf("%d picks, %d failures", picks, failures)
	}
	procs.Await(t, "one request counted as cancelled", func() bool { return x.count("ringway_relay_requests_total", "cancelled") == 1 })
}

func TestABadTargetIsRefusedBeforeAPick(t *testing.T) {
	x := try(t, 1, func(int64, http.ResponseWriter, *http.Request) {}, func(*ingress.Config) {})
	for _, target := range []string{"a:80", "x:@evil.test/p"} {
		conn, err := net.Dial("tcp", x.addr)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, "GET "+target+" HTTP/1.1\r\nHost: a\r\nRingway-Service: echo\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %v %v", target, resp, err)
		}
		_ = conn.Close()
	}
	if picks, failures := x.blamed(); picks != 0 || failures != 0 {
		t.Errorf("%d picks, %d failures", picks, failures)
	}
}

func TestASlowUploadIsNotCutAndBlamesNoWorker(t *testing.T) {
	x := try(t, 1, func(_ int64, _ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) },
		func(c *ingress.Config) { c.Timeout = time.Second })
	conn := procs.Dial(t, x.addr)
	_, _ = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: a\r\nRingway-Service: echo\r\nTransfer-Encoding: chunked\r\n\r\n")
	for range 12 {
		time.Sleep(100 * time.Millisecond) // is slow
		_, _ = io.WriteString(conn, "1\r\nx\r\n")
	}
	_, _ = io.WriteString(conn, "0\r\n\r\n")
	if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("%v %v", resp, err)
	}
	if picks, failures := x.blamed(); picks != 1 || failures != 0 {
		t.Errorf("%d picks, %d failures", picks, failures)
	}
}

func TestAnAttemptOnAWorkerThatIsDeclaredDeadIsRetriedOnAnotherImmediately(t *testing.T) {
	asked := make(chan struct{}, 1)
	x := try(t, 3, func(n int64, w http.ResponseWriter, r *http.Request) {
		if n == 1 {
			asked <- struct{}{}
			hang(n, w, r)
		}
	}, func(*ingress.Config) {})
	go func() {
		<-asked
		for _, target := range x.Route().Range {
			if target.Pool.Stats().InFlight > 0 {
				target.Pool.Abandon()
				return
			}
		}
	}()
	if resp, body := x.send("GET", ""); resp.StatusCode != http.StatusOK || resp.Header.Get(wire.AttemptsHeader) != "2" {
		t.Errorf("%s %s", resp.Status, body)
	}
	if n := x.count("ringway_relay_retries_total", "declared_dead"); n != 1 {
		t.Errorf("%d retries for that reason", n)
	}
}

func TestADialThatRanOutOfItsOwnTimeIsNoTimeoutOfTheRequest(t *testing.T) {
	observed := 0
	x := try(t, 0, hang, func(cfg *ingress.Config) { cfg.Unreachable = func(advertise.Endpoint) { observed++ } })
	pool, err := upstream.NewPool(upstream.Config{Address: "192.0.2.1:80", DialTimeout: 10 * time.Millisecond,
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if err := x.SetRoute(&routing.Route{Range: []*routing.Target{{ID: "w1.1", Node: "w1", Weight: 1, Pool: pool, Endpoint: &advertise.Endpoint{}}}}, 0); err != nil {
		t.Fatal(err)
	}
	if resp, body := x.send("POST", ""); resp.StatusCode != http.StatusBadGateway || !strings.Contains(body, "dial: no connection within 10ms") {
		t.Errorf("%s %s", resp.Status, body)
	}
	if observed == 0 {
		t.Error("the endpoint is not checked, and a host without power refuses nothing")
	}
}

func TestARelayThatCanOpenNoConnectionReportsItAndBlamesNoWorker(t *testing.T) {
	socket := func(err error) error {
		return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("socket", err)}
	}
	for _, c := range []struct {
		err  error
		says string
	}{
		{socket(syscall.EMFILE), "out of file descriptors"},
		{socket(syscall.ENFILE), "out of file descriptors"},
		{socket(syscall.EADDRNOTAVAIL), "out of local ports or addresses"},
		{&net.OpError{Op: "dial", Err: &net.DNSError{Err: "dial udp: socket: " + syscall.EMFILE.Error(), Name: "db"}}, "out of file descriptors"},
	} {
		for _, protocol := range []advertise.Protocol{advertise.HTTP1, advertise.H2C} {
			x := try(t, 0, hang, func(*ingress.Config) {})
			var targets []*routing.Target
			for _, node := range []string{"w1", "w2"} {
				pool, err := upstream.NewPool(upstream.Config{Address: "192.0.2.1:80", Protocol: protocol,
					Dial: func(context.Context, string, string) (net.Conn, error) { return nil, c.err }})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(pool.Close)
				targets = append(targets, &routing.Target{ID: node + ".1", Node: node, Weight: 1, Pool: pool})
			}
			if err := x.SetRoute(&routing.Route{Range: targets}, 0); err != nil {
				t.Fatal(err)
			}
			resp, body := x.send("POST", "")
			if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") != "1" || !strings.Contains(body, `"relay_exhausted"`) || !strings.Contains(body, c.says) {
				t.Errorf("%v over %s: %s %s", c.err, protocol, resp.Status, body)
			}
			if picks, failures := x.blamed(); picks != 2 || failures != 0 {
				t.Errorf("%v over %s: %d picks and %d failures", c.err, protocol, picks, failures)
			}
			if n := x.count("ringway_relay_retries_total", "local"); n != 1 { // after the second attempt no other worker is left
				t.Errorf("%v over %s: %d retries for that reason", c.err, protocol, n)
			}
			if n := x.count("ringway_relay_rejections_total", "relay_exhausted"); n != 1 {
				t.Errorf("%v over %s: counted %d times", c.err, protocol, n)
			}
		}
	}
}

func TestARequestThatAStoppingRelayEndsIsNotRepeatedAndBlamesNoWorker(t *testing.T) {
	for _, protocol := range []advertise.Protocol{advertise.HTTP1, advertise.H2C} {
		arrived := make(chan struct{}, 1)
		x := try(t, 1, hang, func(*ingress.Config) {})
		protocols := new(http.Protocols)
		protocols.SetHTTP1(true)
		protocols.SetUnencryptedHTTP2(true)
		worker := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			arrived <- struct{}{}
			hang(0, w, r)
		}))
		worker.Config.Protocols = protocols
		worker.Start()
		t.Cleanup(worker.Close)
		sessions := &upstream.Sessions{}
		var targets []*routing.Target
		for _, node := range []string{"w1", "w2"} {
			pool, err := upstream.NewPool(upstream.Config{Address: worker.Listener.Addr().String(), Protocol: protocol, Sessions: sessions})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			targets = append(targets, &routing.Target{ID: node + ".1", Node: node, Weight: 1, Pool: pool})
		}
		if err := x.SetRoute(&routing.Route{Range: targets}, 0); err != nil {
			t.Fatal(err)
		}
		go func() {
			<-arrived
			sessions.EndRequests()
		}()
		if resp, body := x.send("GET", ""); resp.StatusCode != http.StatusGatewayTimeout || !strings.Contains(body, "this relay stops") {
			t.Errorf("over %s: %s %s", protocol, resp.Status, body)
		}
		if picks, failures := x.blamed(); picks != 1 || failures != 0 {
			t.Errorf("over %s: %d picks and %d failures", protocol, picks, failures)
		}
	}
}
