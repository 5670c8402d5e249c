package ingress_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/selection"
)

// sidecars answers for a number of endpoints; each attempt has its number from
// its place in the order.
type sidecars struct {
	mu       sync.Mutex
	attempts []string // the bodies, in order
	failed   string   // the FailedHeader of every attempt but the last
	last     int
}

func (s *sidecars) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	if got := r.Header.Get(wire.ServiceHeader); got != "echo" {
		w.WriteHeader(http.StatusNotFound)
	}
	s.attempts = append(s.attempts, string(body))
	if len(s.attempts) < s.last {
		w.Header().Set(wire.FailedHeader, s.failed)
		w.WriteHeader(http.StatusBadGateway)
	}
}

// relayTo serves a relay's handler in front of five endpoints, all at the
// address.
func relayTo(t *testing.T, endpoint http.Handler, secured bool) string {
	t.Helper()
	behind := httptest.NewServer(endpoint)
	t.Cleanup(behind.Close)
	service, err := routing.NewService("echo", selection.DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	route := &routing.Route{}
	for _, id := range []string{"w1", "w2", "w3", "w4", "w5"} {
		pool, err := upstream.NewPool(upstream.Config{Address: behind.Listener.Addr().String()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		route.Range = append(route.Range, &routing.Target{ID: id, Node: id, Weight: 1, Pool: pool, Secured: secured})
	}
	if err := service.SetRoute(route, 0); err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(ingress.New(ingress.Config{
		Self: "r1", Services: one{service}, Epoch: time.Now(), Requests: ingress.Requests{Timeout: time.Minute, MaxAttempts: 5, RetryBudget: 1, MaxInFlight: 100, ExposeRouteHeaders: true},
		Metrics: ingress.NewMetrics(prometheus.NewRegistry()), Logger: slog.New(slog.DiscardHandler),
	}))
	t.Cleanup(front.Close)
	return front.Listener.Addr().String()
}

func TestWhatASidecarReportsDecidesOnARetry(t *testing.T) {
	small, long := "small", strings.Repeat("x", wire.ReplayLimit+1)
	for _, c := range []struct {
		method, body, failed string
		retried              bool
	}{
		{"GET", "", wire.FailedUnsent, true},
		{"POST", "", wire.FailedUnsent, true},
		{"POST", small, wire.FailedUnsent, true},
		{"POST", long, wire.FailedUnsent, false}, // it is gone
		{"GET", "", wire.FailedSent, true},
		{"PUT", small, wire.FailedSent, true},
		{"PUT", long, wire.FailedSent, false},
		{"POST", "", wire.FailedSent, false},
		{"POST", small, wire.FailedSent, false},
		{"POST", small, "of a later build", false},
	} {
		s := &sidecars{failed: c.failed, last: 3}
		addr := relayTo(t, s, true)
		req, err := http.NewRequestWithContext(t.Context(), c.method, "http://"+addr, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(wire.ServiceHeader, "echo")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		answer, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		wantStatus, wantAttempts := http.StatusOK, []string{c.body, c.body, c.body}
		if !c.retried {
			wantStatus, wantAttempts = http.StatusBadGateway, []string{c.body}
			if !strings.Contains(string(answer), "upstream_failed") || !strings.Contains(string(answer), "sidecar") {
				t.Errorf("%s of %d bytes, %s: %s", c.method, len(c.body), c.failed, answer)
			}
		}
		if resp.StatusCode != wantStatus || !slices.Equal(s.attempts, wantAttempts) || resp.Header.Get(wire.FailedHeader) != "" {
			t.Errorf("%s of %d bytes, %s: %s after %d attempts, want %d after %d", c.method, len(c.body), c.failed, resp.Status, len(s.attempts), wantStatus, len(wantAttempts))
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// secure makes the endpoints those of sidecars.
func (f *front) secure() {
	for _, target := range f.Route().Range {
		target.Secured = true
	}
}

func TestARequestThatAFullWorkerRefusedIsTriedElsewhereAndTheWorkerIsNotBlamed(t *testing.T) {
	for _, c := range []struct {
		name         string
		refusals     int64
		budget       float64
		status       int
		attempts     int
		retries, out int
	}{
		{name: "another has room", refusals: 2, budget: 1, status: http.StatusOK, attempts: 3, retries: 2},
		{name: "none has room", refusals: 9, budget: 1, status: http.StatusServiceUnavailable, attempts: 5, retries: 4, out: 1},
		{name: "no retry is left", refusals: 9, budget: 0, status: http.StatusServiceUnavailable, attempts: 1, out: 1},
	} {
		var bodies []string
		x := try(t, 6, func(n int64, w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			bodies = append(bodies, string(body))
			if n <= c.refusals {
				w.Header().Set(wire.FailedHeader, wire.FailedFull)
				w.Header().Set(wire.LoadHeader, "7")
				w.WriteHeader(http.StatusTooManyRequests)
			}
		}, func(cfg *ingress.Config) { cfg.RetryBudget = c.budget })
		x.secure()
		resp, body := x.send("POST", "small")
		if resp.StatusCode != c.status || len(bodies) != c.attempts || slices.ContainsFunc(bodies, func(b string) bool { return b != "small" }) {
			t.Errorf("%s: %s %s after %q", c.name, resp.Status, body, bodies)
		}
		if refused := c.out > 0; refused && (resp.Header.Get("Retry-After") != "1" || !strings.Contains(body, `"code":"overloaded"`)) {
			t.Errorf("%s: %v %s", c.name, resp.Header, body)
		}
		if picks, failures := x.blamed(); picks != c.attempts || failures != 0 {
			t.Errorf("%s: %d picks and %d failures", c.name, picks, failures)
		}
		if n := x.count("ringway_relay_retries_total", "full"); n != c.retries {
			t.Errorf("%s: %d retries are counted", c.name, n)
		}
		if n := x.count("ringway_relay_rejections_total", "overloaded"); n != c.out {
			t.Errorf("%s: %d rejections are counted", c.name, n)
		}
	}
}

// A relay would lose its reserve for failures while its service is merely busy.
func TestARetryForWhichNoWorkerWasLeftIsNeitherCountedNorPaidFor(t *testing.T) {
	x := try(t, 2, func(_ int64, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(wire.FailedHeader, wire.FailedUnsent)
		w.WriteHeader(http.StatusBadGateway)
	}, func(cfg *ingress.Config) { cfg.RetryBudget = 0.001 }) // 500 are saved up
	x.secure()
	for range 300 {
		if resp, body := x.send("GET", ""); resp.StatusCode != http.StatusBadGateway {
			t.Fatalf("%s %s", resp.Status, body)
		}
	}
	if n, out := x.count("ringway_relay_retries_total", "service"), x.count("ringway_relay_retries_total", "no_budget"); n != 300 || out != 0 {
		t.Errorf("%d retries and %d that were not made for want of a budget, of 300 requests", n, out)
	}
}

func TestWhereNoWorkerHasRoomTheAnswerIsThatThereIsTooMuch(t *testing.T) {
	held, release := make(chan struct{}), make(chan struct{})
	x := try(t, 1, func(n int64, _ http.ResponseWriter, _ *http.Request) {
		if n == 1 {
			close(held)
			<-release
		}
	}, func(*ingress.Config) {})
	target := *x.Route().Range[0]
	target.Limit = 1
	if err := x.SetRoute(&routing.Route{Range: []*routing.Target{&target}}, x.now()); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { x.send("GET", "") })
	<-held
	resp, body := x.send("GET", "")
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") != "1" || !strings.Contains(body, `"code":"overloaded"`) {
		t.Errorf("%s %v %s", resp.Status, resp.Header, body)
	}
	close(release)
	wg.Wait()
	x.awaitInFlight(0)
	if resp, body := x.send("GET", ""); resp.StatusCode != http.StatusOK {
		t.Errorf("with a free slot: %s %s", resp.Status, body)
	}
}

func TestAServicesOwn429IsTheAnswer(t *testing.T) {
	x := try(t, 3, func(_ int64, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) }, func(*ingress.Config) {})
	x.secure()
	if resp, body := x.send("GET", ""); resp.StatusCode != http.StatusTooManyRequests || x.attempts.Load() != 1 {
		t.Errorf("%s %s after %d attempts", resp.Status, body, x.attempts.Load())
	}
}

// A service that relays reach directly cannot make them repeat a request.
func TestOnlyASidecarsWordDecides(t *testing.T) {
	attempts := 0
	addr := relayTo(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		attempts++
		if r.Header.Get(wire.ServiceHeader) != "" {
			t.Error("a service was told its own name")
		}
		w.Header().Set(wire.FailedHeader, wire.FailedUnsent)
		w.WriteHeader(http.StatusBadGateway)
	}), false)
	req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+addr, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(wire.ServiceHeader, "echo")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if attempts != 1 || resp.StatusCode != http.StatusBadGateway || resp.Header.Get(wire.FailedHeader) != "" {
		t.Errorf("%s after %d attempts, %v", resp.Status, attempts, resp.Header)
	}
	http.DefaultClient.CloseIdleConnections()
}

// A refusal before the body is read leaves nothing that could be taken for the
// client's next request.
func TestAnUnreadBodyIsNeverTakenForARequest(t *testing.T) {
	addr := relayTo(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		w.Header().Set("Connection", "close")
		w.Header().Set(wire.FailedHeader, wire.FailedUnsent)
		w.WriteHeader(http.StatusBadGateway)
	}), true)
	conn := procs.Dial(t, addr)
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	_, _ = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nRingway-Service: echo\r\nContent-Length: 1000000\r\n\r\n")
	_, _ = io.WriteString(conn, "GET /smuggled HTTP/1.1\r\nHost: x\r\nRingway-Service: echo\r\n\r\n")
	got, _ := io.ReadAll(conn)
	if n := strings.Count(string(got), "HTTP/1.1 "); n != 1 || !strings.Contains(string(got), " 502 ") {
		t.Errorf("%d answers:\n%s", n, got)
	}
}
