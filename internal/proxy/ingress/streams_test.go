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
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/logtest"
	"github.com/ringway/ringway/internal/memnet"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/strategy"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/selection"
)

// front is a relay's handler behind a real listener, before workers that are all at
// one address.
type front struct {
	*routing.Service
	t       *testing.T
	host    *memnet.Host // has all of it; nil is loopback
	addr    string
	handler *ingress.Handler
	epoch   time.Time
	log     *logtest.Log
}

func newFront(t *testing.T, workers int, behind http.Handler) *front {
	t.Helper()
	return newFrontOn(t, nil, workers, behind)
}

// inMemory is a host for a test in a bubble of synctest.
func inMemory(t *testing.T) *memnet.Host {
	network := memnet.New(memnet.Config{})
	t.Cleanup(func() { _ = network.Close() })
	return network.Host("192.0.2.1")
}

func newFrontOn(t *testing.T, host *memnet.Host, workers int, behind http.Handler) *front {
	t.Helper()
	f := &front{t: t, host: host, epoch: time.Now(), log: &logtest.Log{}}
	backend := f.serve(behind)
	var err error
	if f.Service, err = routing.NewService("echo", selection.DefaultConfig()); err != nil {
		t.Fatal(err)
	}
	route := &routing.Route{}
	for i := range workers {
		pool, err := upstream.NewPool(upstream.Config{Address: backend, Dial: f.dial()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		node := fmt.Sprintf("w%d", i+1)
		route.Range = append(route.Range, &routing.Target{ID: node + ".1", Node: node, Address: backend, Weight: 1, Pool: pool})
	}
	if err := f.SetRoute(route, 0); err != nil {
		t.Fatal(err)
	}
	f.handler = f.handlerWith(slog.LevelDebug)
	f.addr = f.serve(f.handler)
	return f
}

// serve serves until the end of the test, and returns the address.
func (f *front) serve(h http.Handler) string {
	f.t.Helper()
	server := &httptest.Server{Config: &http.Server{Handler: h}}
	if f.host == nil {
		server.Listener = procs.Listen(f.t)
	} else {
		var err error
		if server.Listener, err = f.host.Listen("192.0.2.1:0"); err != nil {
			f.t.Fatal(err)
		}
	}
	server.Start()
	f.t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// dial returns what connects to the addresses of serve, nil for a system's own.
func (f *front) dial() func(ctx context.Context, network, addr string) (net.Conn, error) {
	if f.host == nil {
		return nil
	}
	return func(ctx context.Context, _, addr string) (net.Conn, error) { return f.host.Dial(ctx, addr) }
}

func (f *front) handlerWith(level slog.Level) *ingress.Handler {
	return ingress.New(ingress.Config{
		Self: "r1", Services: one{f.Service}, Epoch: f.epoch, Requests: ingress.Requests{Timeout: time.Minute, MaxAttempts: 5, MaxInFlight: 100, ExposeRouteHeaders: true},
		Metrics: ingress.NewMetrics(prometheus.NewRegistry()), Logger: slog.New(slog.NewTextHandler(f.log, &slog.HandlerOptions{Level: level})),
	})
}

func (f *front) choose(text string) {
	f.t.Helper()
	spec, err := strategy.Parse(text)
	if err != nil {
		f.t.Fatal(err)
	}
	choice, err := routing.NewChoice(routing.ChoiceConfig{Spec: spec, Service: "echo", Now: f.now})
	if err != nil {
		f.t.Fatal(err)
	}
	if err := f.SetChoice(choice); err != nil {
		f.t.Fatal(err)
	}
}

func (f *front) now() selection.Instant { return selection.Instant(time.Since(f.epoch)) }

// inFlight is how many requests the balancer counts, and how many endpoints have
// answered so far.
func (f *front) inFlight() (requests, answered int) {
	for _, s := range f.Endpoints.Stats(f.now()) {
		requests += s.InFlight
		if s.Latency > 0 {
			answered++
		}
	}
	return requests, answered
}

func (f *front) awaitInFlight(want int) {
	f.t.Helper()
	procs.Await(f.t, fmt.Sprintf("%d requests in flight", want), func() bool { n, _ := f.inFlight(); return n == want })
}

// get sends a request with a key, which may be empty.
func (f *front) get(path, key string) *http.Response {
	f.t.Helper()
	req, err := http.NewRequestWithContext(f.t.Context(), http.MethodGet, "http://"+f.addr+path, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	req.Header.Set(wire.ServiceHeader, "echo")
	if key != "" {
		req.Header.Set(wire.KeyHeader, key)
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: f.dial()}}).Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// The relay learns from the head of an answer; the request stays in flight until the
// last byte, and the worker is not silent meanwhile.
func TestALongStreamStaysInFlightAndDoesNotLookSilent(t *testing.T) {
	release := make(chan struct{})
	f := newFront(t, 1, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "first\n")
		_ = http.NewResponseController(w).Flush()
		<-release
		_, _ = io.WriteString(w, "last\n")
	}))
	resp := f.get("/", "")
	body := bufio.NewReader(resp.Body)
	if line, err := body.ReadString('\n'); err != nil || line != "first\n" {
		t.Fatalf("%q, %v", line, err)
	}
	if n, answered := f.inFlight(); n != 1 || answered != 1 {
		t.Errorf("in the stream: %d in flight, %d answered, want 1 and 1", n, answered)
	}
	if silence := f.Endpoints.Silence("w1.1", f.now()+selection.Instant(time.Hour)); silence != 0 {
		t.Errorf("silent for %v", silence)
	}
	close(release)
	if rest, err := io.ReadAll(body); err != nil || string(rest) != "last\n" {
		t.Errorf("%q, %v", rest, err)
	}
	f.awaitInFlight(0)
	if s := f.Endpoints.Stats(f.now())[0]; s.Picks != 1 || s.Failures != 0 {
		t.Errorf("%+v", s)
	}
}

func TestAnAttemptThatRanOutOfTimeIsNoSignOfLife(t *testing.T) {
	const limit = 500 * time.Millisecond // with the dial
	asked := make(chan struct{}, 2)
	f := newFront(t, 1, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	request := func(ctx context.Context) *http.Request {
		r := httptest.NewRequestWithContext(ctx, "GET", "/", nil)
		r.Header.Set(wire.ServiceHeader, "echo")
		return r
	}
	var waiting sync.WaitGroup
	waiting.Go(func() {
		defer func() { _ = recover() }() // net/http's abort, when the test is over
		f.handler.ServeHTTP(httptest.NewRecorder(), request(ctx))
	})
	<-asked
	hurried := ingress.New(ingress.Config{
		Self: "r1", Services: one{f.Service}, Epoch: f.epoch, Requests: ingress.Requests{Timeout: limit, MaxAttempts: 1, MaxInFlight: 100},
		Metrics: ingress.NewMetrics(prometheus.NewRegistry()), Logger: slog.New(slog.DiscardHandler),
	})
	w := httptest.NewRecorder()
	hurried.ServeHTTP(w, request(t.Context()))
	if w.Code != http.StatusGatewayTimeout {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if silence := f.Endpoints.Silence("w1.1", f.now()); silence < limit*9/10 {
		t.Errorf("silent for %v, and nothing was heard for %v", silence, limit)
	}
	if s := f.Endpoints.Stats(f.now())[0]; s.Failures != 1 {
		t.Errorf("%+v", s)
	}
	cancel()
	waiting.Wait()
}

func TestATunnelStaysInFlightUntilItEnds(t *testing.T) {
	f := newFront(t, 1, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = conn.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"))
		_, _ = io.Copy(conn, buffered)
	}))
	conn := procs.Dial(t, f.addr)
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\nRingway-Service: echo\r\n\r\nhello\n")
	r := bufio.NewReader(conn)
	for line, err := "", error(nil); line != "hello\n"; {
		if line, err = r.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	if n, answered := f.inFlight(); n != 1 || answered != 1 {
		t.Errorf("in the tunnel: %d in flight, %d answered, want 1 and 1", n, answered)
	}
	if silence := f.Endpoints.Silence("w1.1", f.now()+selection.Instant(time.Hour)); silence != 0 {
		t.Errorf("silent for %v", silence)
	}
	_ = conn.Close()
	f.awaitInFlight(0)
	if s := f.Endpoints.Stats(f.now())[0]; s.Picks != 1 || s.Failures != 0 {
		t.Errorf("%+v", s)
	}
}

// A worker that breaks off fails twice over: its head was good, its body is not.
func TestAnAnswerThatBreaksOffIsAFailureOfTheWorker(t *testing.T) {
	f := newFront(t, 1, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "first\n")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	if _, err := io.ReadAll(f.get("/", "").Body); err == nil {
		t.Error("the client does not see that the answer broke off")
	}
	f.awaitInFlight(0)
	if s := f.Endpoints.Stats(f.now())[0]; s.Failures != 1 || s.Latency == 0 {
		t.Errorf("%+v: want one failure, and the latency of the head", s)
	}
}

func TestTheKeyDecidesAndStaysOnTheRelaysSide(t *testing.T) {
	f := newFront(t, 5, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name := range r.Header {
			if strings.HasPrefix(name, "Ringway-") {
				t.Errorf("the worker sees %s", name)
			}
		}
	}))
	f.choose("stable")
	to := func(key string) string { return f.get("/", key).Header.Get(wire.EndpointHeader) }
	workers := map[string]bool{}
	for i := range 20 {
		key := fmt.Sprint("key", i)
		home := to(key)
		if again := to(key); again != home {
			t.Errorf("%s goes to %s and %s", key, home, again)
		}
		workers[home] = true
	}
	if len(workers) < 3 {
		t.Errorf("20 keys go to %v", workers)
	}
	clear(workers)
	for range 40 {
		workers[to("")] = true
	}
	if len(workers) < 3 {
		t.Errorf("without a key: %v", workers)
	}
}

func TestTheReasonForNoEndpointIsInTheAnswer(t *testing.T) {
	f := newFront(t, 2, http.NotFoundHandler())
	f.choose("manual;preferred=w8,w9")
	resp := f.get("/", "")
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(body), `"code":"no_endpoint"`) || !strings.Contains(string(body), "w8, w9") {
		t.Errorf("%s %s", resp.Status, body)
	}
}

func TestEveryDecisionIsInTheLogWhenItIsAskedFor(t *testing.T) {
	f := newFront(t, 3, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	f.get("/", "alice")
	if log := f.log.String(); !strings.Contains(log, "picked a worker") || !strings.Contains(log, "strategy=p2c") || !strings.Contains(log, "success 1") || strings.Count(log, "\n") != 1 {
		t.Errorf("p2c:\n%s", log)
	}
	f.choose("stable")
	home := f.get("/", "alice").Header.Get(wire.EndpointHeader)
	if log := f.log.String(); !strings.Contains(log, "strategy=stable") || !strings.Contains(log, "key=alice") || !strings.Contains(log, "winner="+home) {
		t.Errorf("stable, won by %s:\n%s", home, log)
	}
	before := f.log.String()
	req := httptest.NewRequest("GET", "/", nil)
	req.Header.Set(wire.ServiceHeader, "echo")
	f.handlerWith(slog.LevelInfo).ServeHTTP(httptest.NewRecorder(), req)
	if log := f.log.String(); log != before {
		t.Errorf("without a request:\n%s", strings.TrimPrefix(log, before))
	}
}
