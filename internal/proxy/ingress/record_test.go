package ingress_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/circuit"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/proxy/downstream"
	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/requestlog"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/wire"
)

// recorded is a relay's ingress in front of workers w1, w2, … which it prefers in that
// order, and the records of its requests.
type recorded struct {
	t       *testing.T
	addr    string
	service *routing.Service
	handler *ingress.Handler
	log     *requestlog.Log
	file    string
	taps    []*requestlog.Tap // of echo, absent and requests without a service
}

// recording starts an ingress. Its log has a file and records all requests, unless changed.
func recording(t *testing.T, change func(*ingress.Config), workers ...upstream.Config) *recorded {
	t.Helper()
	x := &recorded{t: t, file: filepath.Join(t.TempDir(), "requests.log")}
	f := newFront(t, 0, http.NotFoundHandler())
	x.service = f.Service
	route := &routing.Route{}
	var order []string
	for i, cfg := range workers {
		pool, err := upstream.NewPool(cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		node := fmt.Sprint("w", i+1)
		order = append(order, node)
		route.Range = append(route.Range, &routing.Target{ID: node + ".1", Node: node, Address: cfg.Address, Weight: 1, Pool: pool})
	}
	if err := f.SetRoute(route, 0); err != nil {
		t.Fatal(err)
	}
	if len(order) > 0 {
		f.choose("ordered;preferred=" + strings.Join(order, ","))
	}
	var err error
	if x.log, err = requestlog.New(requestlog.Config{File: x.file, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()}); err != nil {
		t.Fatal(err)
	}
	if err := x.log.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.log.Close() })
	for _, service := range []string{"echo", "absent", ""} {
		tap, ok := x.log.Tap(service, requestlog.Filter{})
		if !ok {
			t.Fatal("no tap")
		}
		x.taps = append(x.taps, tap)
	}
	cfg := ingress.Config{
		Self: "r1", Services: one{f.Service}, Epoch: f.epoch, Progress: time.Minute, Records: x.log,
		Requests: ingress.Requests{Timeout: time.Minute, MaxAttempts: 5, RetryBudget: 1, MaxInFlight: 100, Record: requestlog.Policy{Sample: 1}},
		Metrics:  ingress.NewMetrics(prometheus.NewRegistry()), Logger: slog.New(slog.DiscardHandler),
	}
	change(&cfg)
	x.handler = ingress.New(cfg)
	x.addr = served(t, x.handler)
	return x
}

// served serves a handler as a relay does.
func served(t testing.TB, h http.Handler) string {
	t.Helper()
	return procs.Serve(t, downstream.New(downstream.Config{Handler: h, Logger: slog.New(slog.DiscardHandler)}))
}

// next is the next record. What changes from run to run is checked and removed.
func (x *recorded) next() map[string]any {
	x.t.Helper()
	var line []byte
	select {
	case line = <-x.taps[0].Lines():
	case line = <-x.taps[1].Lines():
	case line = <-x.taps[2].Lines():
	case <-time.After(30 * time.Second):
		x.t.Fatal("there is no record")
	}
	var got map[string]any
	if err := json.Unmarshal(line, &got); err != nil {
		x.t.Fatalf("%v in %s", err, line)
	}
	at, err := time.Parse(time.RFC3339Nano, fmt.Sprint(got["timestamp"]))
	if age := time.Since(at); err != nil || age < -time.Second || age > time.Minute {
		x.t.Errorf("a request of now has the time %v", got["timestamp"])
	}
	if id := fmt.Sprint(got["ringway.request.id"]); !requestlog.ValidID(id) {
		x.t.Errorf("the ID is %q", id)
	}
	attempts, _ := got["ringway.attempts"].([]any)
	for _, facts := range append([]any{got}, attempts...) {
		for name, value := range facts.(map[string]any) {
			if ms, isNumber := value.(float64); strings.HasSuffix(name, "_ms") && isNumber {
				if ms < 0 || ms > 60_000 {
					x.t.Errorf("%s is %v", name, ms)
				}
				delete(facts.(map[string]any), name)
			}
		}
		delete(facts.(map[string]any), "address")
		if text, ok := facts.(map[string]any)["error"].(string); ok {
			facts.(map[string]any)["error"] = text != ""
		}
	}
	delete(got, "timestamp")
	delete(got, "ringway.request.id")
	return got
}

// kept closes the log and returns the lines of its file.
func (x *recorded) kept() (lines []map[string]any) {
	x.t.Helper()
	if err := x.log.Close(); err != nil {
		x.t.Fatal(err)
	}
	text, err := os.ReadFile(x.file)
	if err != nil {
		x.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var got map[string]any
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			x.t.Fatalf("%v in %q", err, line)
		}
		lines = append(lines, got)
	}
	return lines
}

// client is a client of HTTP/1.1 or HTTP/2.
func clientOf(t *testing.T, major int) *http.Client {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(major == 1)
	protocols.SetUnencryptedHTTP2(major == 2)
	transport := &http.Transport{Protocols: protocols}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// ask sends a request to the service and reads the answer, as far as it goes.
func (x *recorded) ask(ctx context.Context, c *http.Client, method, path, body string, fields ...string) (*http.Response, string) {
	x.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+x.addr+path, strings.NewReader(body))
	if err != nil {
		x.t.Fatal(err)
	}
	req.Header.Set(wire.ServiceHeader, "echo")
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		if req.Header.Set(name, value); value == "" {
			req.Header.Del(name)
		}
	}
	resp, err := c.Do(req)
	if err != nil {
		return nil, err.Error()
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return resp, string(text)
}

func worker(t *testing.T, h http.HandlerFunc) upstream.Config {
	return upstream.Config{Address: endpoint(t, h)}
}

func refusing(t *testing.T) upstream.Config { return upstream.Config{Address: procs.Refusing(t)} }

// facts are the fields of a record; those that are nil are not there.
type facts map[string]any

func (f facts) with(more facts) facts {
	out := maps.Clone(f)
	maps.Copy(out, more)
	return out
}

// attempt is one failed attempt, or an answered one.
func attempt(endpoint, failure string, status int) map[string]any {
	a := map[string]any{"endpoint": endpoint, "chosen_by": "ordered", "reused": false}
	if failure != "" {
		a["failure"], a["error"] = failure, true
	}
	if status != 0 {
		a["status"] = float64(status)
	}
	return a
}

func attempts(list ...any) []any { return list }

func TestARecordHasTheFactsOfEachOutcome(t *testing.T) {
	echo := func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	short := func(c *ingress.Config) { c.Timeout = 2 * time.Second }
	same := func(*ingress.Config) {}
	own := func(code string, status int, body int) facts {
		return facts{"http.response.status_code": float64(status), "error.type": code, "ringway.outcome": "failed", "http.response.body.size": float64(body), "ringway.attempts": nil}
	}
	for name, c := range map[string]struct {
		change       func(*ingress.Config)
		workers      []upstream.Config
		method, body string
		fields       []string
		want         facts // compared with a GET that one worker has answered
	}{
		"success":      {same, []upstream.Config{worker(t, echo)}, "POST", "hello", nil, facts{"http.request.method": "POST", "http.request.body.size": 5.0, "http.response.body.size": 5.0}},
		"a status":     {same, []upstream.Config{worker(t, status(404))}, "GET", "", nil, facts{"http.response.status_code": 404.0, "ringway.outcome": "4xx", "ringway.attempts": attempts(attempt("w1", "", 404))}},
		"its error":    {same, []upstream.Config{worker(t, status(500))}, "GET", "", nil, facts{"http.response.status_code": 500.0, "ringway.outcome": "5xx", "ringway.attempts": attempts(attempt("w1", "", 500))}},
		"with a query": {func(c *ingress.Config) { c.Record.Path = requestlog.PathFull }, []upstream.Config{worker(t, echo)}, "GET", "", nil, facts{"url.query": "q=1"}},
		"without path": {func(c *ingress.Config) { c.Record.Path = requestlog.PathNone }, []upstream.Config{worker(t, echo)}, "GET", "", nil, facts{"url.path": nil}},
		"a trace": {same, []upstream.Config{worker(t, echo)}, "GET", "", []string{"Traceparent: " + callers},
			facts{"trace_id": "0af7651916cd43dd8448eb211c80319c"}},
		"a malformed trace": {same, []upstream.Config{worker(t, echo)}, "GET", "", []string{"Traceparent: 00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01"}, nil},
		"a retry, then success": {same, []upstream.Config{refusing(t), worker(t, echo)}, "POST", "hello", nil,
			facts{"http.request.method": "POST", "http.request.body.size": 5.0, "http.response.body.size": 5.0, "ringway.attempts": attempts(attempt("w1", "dial", 0), attempt("w2", "", 200))}},
		"all attempts failed": {same, []upstream.Config{refusing(t), refusing(t)}, "GET", "", nil,
			own("upstream_failed", 502, 93).with(facts{"ringway.attempts": attempts(attempt("w1", "dial", 0), attempt("w2", "dial", 0))})},
		"no time": {short, []upstream.Config{worker(t, func(w http.ResponseWriter, r *http.Request) { hang(0, w, r) })}, "GET", "", nil,
			own("timeout", 504, 76).with(facts{"ringway.attempts": attempts(attempt("w1", "head", 0))})},
		"the deadline was over": {same, []upstream.Config{worker(t, echo)}, "GET", "", []string{"Ringway-Timeout: 0"}, own("timeout", 504, 90)},
		"not a request":         {same, []upstream.Config{worker(t, echo)}, "GET", "", []string{"Ringway-Timeout: x"}, own("bad_request", 400, 0)},
		"no service named":      {same, nil, "GET", "", []string{"Ringway-Service: "}, own("bad_request", 400, 0).with(facts{"ringway.service": nil})},
		"an unknown service":    {same, nil, "GET", "", []string{"Ringway-Service: absent"}, own("unknown_service", 404, 0).with(facts{"ringway.service": "absent"})},
		"not informed":          {func(c *ingress.Config) { c.Informed = func() bool { return false } }, nil, "GET", "", []string{"Ringway-Service: absent"}, own("not_ready", 503, 0).with(facts{"ringway.service": "absent"})},
		"nothing to know":       {func(c *ingress.Config) { c.Empty = func() bool { return true } }, nil, "GET", "", []string{"Ringway-Service: absent"}, own("no_endpoint", 503, 0).with(facts{"ringway.service": "absent"})},
		"not a client's":        {func(c *ingress.Config) { c.OnlyServices = []string{"echo"} }, nil, "GET", "", []string{"Ringway-Service: absent"}, own("unknown_service", 404, 0).with(facts{"ringway.service": "absent"})},
		"no endpoint":           {same, nil, "GET", "", nil, own("no_endpoint", 503, 0)},
		"overloaded":            {func(c *ingress.Config) { c.MaxInFlight = 0 }, []upstream.Config{worker(t, echo)}, "GET", "", nil, own("overloaded", 503, 0)},
		"a relay without descriptors": {same, []upstream.Config{{Address: "192.0.2.1:1", Dial: func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("socket", syscall.EMFILE)}
		}}}, "GET", "", nil, own("relay_exhausted", 503, 0).with(facts{"ringway.attempts": attempts(attempt("w1", "local", 0))})},
		"behind another relay": {func(c *ingress.Config) { c.FromRelay = true }, []upstream.Config{worker(t, echo)}, "GET", "", []string{"Ringway-Hop: r9", "X-Forwarded-For: 198.51.100.7"},
			facts{"ringway.forwarded_by": "r9", "ringway.caller": nil, "client.address": "198.51.100.7"}},
		"a caller that another relay names": {func(c *ingress.Config) { c.FromRelay = true }, []upstream.Config{worker(t, echo)}, "GET", "", []string{"Ringway-Hop: r9", "Ringway-Caller: cart", "X-Forwarded-For: 198.51.100.7"},
			facts{"ringway.forwarded_by": "r9", "ringway.caller": "cart", "client.address": "198.51.100.7"}},
		"behind another relay and its proxy": {func(c *ingress.Config) { c.FromRelay = true }, []upstream.Config{worker(t, echo)}, "GET", "", []string{"Ringway-Hop: r9", "X-Forwarded-For: 203.0.113.9, 198.51.100.7,10.0.0.1"},
			facts{"ringway.forwarded_by": "r9", "ringway.caller": nil, "client.address": "198.51.100.7"}},
		"misdirected": {func(c *ingress.Config) { c.FromRelay = true }, nil, "GET", "", []string{"Ringway-Service: absent"},
			own("misdirected", 421, 0).with(facts{"ringway.service": "absent", "ringway.caller": nil})},
		"behind a proxy": {func(c *ingress.Config) { c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} }, []upstream.Config{worker(t, echo)}, "GET", "",
			[]string{"Ringway-Caller: web", "X-Forwarded-For: 203.0.113.9, 198.51.100.7"}, facts{"ringway.caller": "web", "client.address": "198.51.100.7"}},
		"a client that claims to be another": {same, []upstream.Config{worker(t, echo)}, "GET", "", []string{"Ringway-Caller: web", "X-Forwarded-For: 198.51.100.7"}, nil},
	} {
		for major := 1; major <= 2; major++ {
			t.Run(fmt.Sprintf("%s, HTTP/%d", name, major), func(t *testing.T) {
				t.Parallel()
				x := recording(t, c.change, c.workers...)
				want := facts{
					"ringway.relay": "r1", "ringway.service": "echo", "ringway.caller": "127.0.0.1", "client.address": "127.0.0.1",
					"http.request.method": "GET", "url.path": "/a%20b", "network.protocol.name": "http", "network.protocol.version": "1.1",
					"http.response.status_code": 200.0, "ringway.outcome": "2xx", "http.request.body.size": 0.0, "http.response.body.size": 0.0,
					"ringway.sampled": true, "ringway.attempts": attempts(attempt("w1", "", 200)),
				}.with(c.want)
				if major == 2 {
					want["network.protocol.version"] = "2"
				}
				maps.DeleteFunc(want, func(_ string, value any) bool { return value == nil })
				resp, text := x.ask(t.Context(), clientOf(t, major), c.method, "/a%20b?q=1", c.body, c.fields...)
				if resp == nil {
					t.Fatal(text)
				}
				if want["error.type"] != nil {
					want["http.response.body.size"] = float64(len(text))
				}
				if got := x.next(); !reflect.DeepEqual(got, map[string]any(want)) {
					t.Errorf("got\n%v, want\n%v", got, want)
				}
				if resp.StatusCode != int(want["http.response.status_code"].(float64)) {
					t.Errorf("the client got %s", resp.Status)
				}
				if n := len(x.kept()); n != 1 {
					t.Errorf("the file has %d records", n)
				}
			})
		}
	}
}

// sizes that are not known before: of a stream, and of a body that comes in pieces.
func TestARecordCountsTheBytesOfStreams(t *testing.T) {
	for major := 1; major <= 2; major++ {
		x := recording(t, func(*ingress.Config) {}, worker(t, func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).EnableFullDuplex()
			_, _ = io.Copy(w, r.Body)
			_, _ = io.WriteString(w, "end")
		}))
		body := strings.Repeat("x", 300<<10)
		req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+x.addr, io.MultiReader(strings.NewReader(body), strings.NewReader("y"))) // no length
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(wire.ServiceHeader, "echo")
		resp, err := clientOf(t, major).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(resp.Body); err != nil || len(text) != len(body)+4 {
			t.Fatalf("%d bytes, %v", len(text), err)
		}
		_ = resp.Body.Close()
		if got := x.next(); got["http.request.body.size"] != float64(len(body)+1) || got["http.response.body.size"] != float64(len(body)+4) {
			t.Errorf("HTTP/%d: %v", major, got)
		}
	}
}

func TestARequestWhoseClientLeavesHasARecordWithoutAStatus(t *testing.T) {
	asked := make(chan struct{}, 2)
	x := recording(t, func(*ingress.Config) {}, worker(t, func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	for major := 1; major <= 2; major++ {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-asked
			cancel()
		}()
		if resp, _ := x.ask(ctx, clientOf(t, major), "GET", "/", ""); resp != nil {
			t.Fatal(resp.Status)
		}
		got := x.next()
		if _, answered := got["http.response.status_code"]; answered || got["ringway.outcome"] != "cancelled" || got["error.type"] != nil || !reflect.DeepEqual(got["ringway.attempts"], attempts(attempt("w1", "client", 0))) {
			t.Errorf("%v", got)
		}
	}
}

func TestAnAnswerThatBreaksOffIsAborted(t *testing.T) {
	x := recording(t, func(c *ingress.Config) { c.Record.Sample = 0 }, worker(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "begun")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	for major := 1; major <= 2; major++ {
		x.ask(t.Context(), clientOf(t, major), "GET", "/", "")
		want := attempt("w1", "body", 200)
		if got := x.next(); got["http.response.status_code"] != 200.0 || got["ringway.outcome"] != "aborted" || got["http.response.body.size"] != 5.0 || !reflect.DeepEqual(withoutReuse(got["ringway.attempts"]), attempts(want)) {
			t.Errorf("%v", got)
		}
	}
	if n := len(x.kept()); n != 2 {
		t.Errorf("%d errors outside of the sample are in the file", n)
	}
}

func withoutReuse(list any) any {
	for _, a := range list.([]any) {
		a.(map[string]any)["reused"] = false
	}
	return list
}

func TestATunnelHasARecordWhenItEnds(t *testing.T) {
	x := recording(t, func(*ingress.Config) {}, worker(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\nhello")
		_, _ = io.CopyN(io.Discard, rw, 3)
		_, _ = io.WriteString(conn, "bye!")
	}))
	conn := procs.Dial(t, x.addr)
	_, _ = io.WriteString(conn, "GET /a%20b HTTP/1.1\r\nHost: x\r\nRingway-Service: echo\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\n")
	r := bufio.NewReader(conn)
	if resp, err := http.ReadResponse(r, nil); err != nil || resp.StatusCode != 101 {
		t.Fatal(resp, err)
	}
	_, _ = io.CopyN(io.Discard, r, 5)
	_, _ = io.WriteString(conn, "abc")
	_, _ = io.Copy(io.Discard, r)
	_ = conn.Close()
	if got := x.next(); got["ringway.tunnel"] != true || got["http.response.status_code"] != 101.0 || got["http.request.body.size"] != 3.0 || got["http.response.body.size"] != 9.0 || got["ringway.outcome"] != "1xx" {
		t.Errorf("%v", got)
	}
}

// h2cService returns the address of a service over HTTP/2 in clear text.
func h2cService(t *testing.T, h http.HandlerFunc) string {
	backend := httptest.NewUnstartedServer(h)
	backend.Config.Protocols = new(http.Protocols)
	backend.Config.Protocols.SetUnencryptedHTTP2(true)
	backend.Start()
	t.Cleanup(backend.Close)
	return backend.Listener.Addr().String()
}

func TestACallOfGRPCHasItsStatus(t *testing.T) {
	answer := "14"
	x := recording(t, func(c *ingress.Config) { c.Record.Sample = 0 }, upstream.Config{Protocol: advertise.H2C, Address: h2cService(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status")
		_, _ = io.WriteString(w, "x")
		w.Header().Set("Grpc-Status", answer)
	})})
	call := func(fields ...string) map[string]any {
		if resp, text := x.ask(t.Context(), clientOf(t, 2), "POST", "/svc/Method", "frame", append(fields, "Content-Type: application/grpc")...); resp == nil {
			t.Fatal(text)
		}
		return x.next()
	}
	for number, want := range map[string]any{"14": "UNAVAILABLE", "0": "OK", "5": "NOT_FOUND", "99": "UNKNOWN", "x": nil} {
		answer = number
		if got := call(); got["rpc.response.status_code"] != want || got["http.response.status_code"] != 200.0 {
			t.Errorf("status %s: %v", number, got)
		}
	}
	if got := call("Ringway-Service: absent"); got["rpc.response.status_code"] != "UNIMPLEMENTED" || got["error.type"] != "unknown_service" || got["http.response.status_code"] != 200.0 {
		t.Errorf("%v", got)
	}
	if n := len(x.kept()); n != 3 { // UNAVAILABLE, UNKNOWN and the relay's own
		t.Errorf("%d records are kept without a sample", n)
	}
}

func TestACircuitAndTheShareOfAClientAreRecorded(t *testing.T) {
	circuits, err := circuit.New(circuit.DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	x := recording(t, func(c *ingress.Config) { c.Circuits = circuits }, refusing(t))
	codes := map[any]bool{}
	for deadline := time.Now().Add(30 * time.Second); !codes["circuit_open"]; {
		if time.Now().After(deadline) {
			t.Fatalf("the circuit did not open: %v", codes)
		}
		x.ask(t.Context(), clientOf(t, 1), "GET", "/", "")
		codes[x.next()["error.type"]] = true
	}

	asked, release := make(chan struct{}), make(chan struct{})
	x = recording(t, func(c *ingress.Config) { c.MaxInFlightPerClient = 1 }, worker(t, func(http.ResponseWriter, *http.Request) {
		asked <- struct{}{}
		<-release
	}))
	done := make(chan struct{})
	go func() {
		defer close(done)
		x.ask(t.Context(), clientOf(t, 1), "GET", "/", "")
	}()
	<-asked
	x.ask(t.Context(), clientOf(t, 1), "GET", "/", "")
	if got := x.next(); got["error.type"] != "client_limit" || got["http.response.status_code"] != 429.0 {
		t.Errorf("%v", got)
	}
	close(release)
	<-done
	x.next()
}

func TestWithoutASampleOnlyErrorsRetriesAndSlowRequestsAreKept(t *testing.T) {
	status := http.StatusOK
	good := worker(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
	for name, c := range map[string]struct {
		workers []upstream.Config
		status  int
		change  func(*ingress.Config)
		kept    int
	}{
		"a success":           {[]upstream.Config{good}, 200, func(*ingress.Config) {}, 0},
		"an error of clients": {[]upstream.Config{good}, 404, func(*ingress.Config) {}, 0},
		"an error":            {[]upstream.Config{good}, 500, func(*ingress.Config) {}, 1},
		"a retry":             {[]upstream.Config{refusing(t), good}, 200, func(*ingress.Config) {}, 1},
		"the relay's own":     {nil, 200, func(*ingress.Config) {}, 1},
		"not slow":            {[]upstream.Config{good}, 200, func(c *ingress.Config) { c.Record.Slow = time.Hour }, 0},
		"slow":                {[]upstream.Config{good}, 200, func(c *ingress.Config) { c.Record.Slow = 1 }, 1},
		"the slowest":         {[]upstream.Config{good}, 200, func(c *ingress.Config) { c.Record.Slowest = 1 }, 1},
	} {
		x := recording(t, func(cfg *ingress.Config) {
			cfg.Record.Sample = 0
			c.change(cfg)
		}, c.workers...)
		status = c.status
		x.ask(t.Context(), clientOf(t, 1), "GET", "/", "")
		if got := x.next(); got["ringway.sampled"] != false { // a tap gets all
			t.Errorf("%s: %v", name, got)
		}
		if n := len(x.kept()); n != c.kept {
			t.Errorf("%s: %d records are kept, want %d", name, n, c.kept)
		}
	}
}

func TestTheIDOfATrustedSenderIsKeptAndThatOfAClientReplaced(t *testing.T) {
	proxies := func(c *ingress.Config) { c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} }
	seen := make(chan []string, 1)
	service := worker(t, func(_ http.ResponseWriter, r *http.Request) {
		seen <- slices.Concat(r.Header["X-Request-Id"], r.Header["X_request_id"], r.Header["X-Request_id"])
	})
	for _, c := range []struct {
		name   string
		change func(*ingress.Config)
		given  []string
		kept   bool
	}{
		{"a client", func(*ingress.Config) {}, []string{"mine"}, false},
		{"a proxy", proxies, []string{"mine"}, true},
		{"a relay", func(c *ingress.Config) { c.FromRelay = true }, []string{"mine"}, true},
		{"the longest", proxies, []string{strings.Repeat("x", 128)}, true},
		{"too long", proxies, []string{strings.Repeat("x", 129)}, false},
		{"a space", proxies, []string{"a b"}, false},
		{"not ASCII", proxies, []string{"ü"}, false},
		{"two", proxies, []string{"a", "b"}, false},
		{"none", proxies, nil, false},
	} {
		x := recording(t, c.change, service)
		r := httptest.NewRequest("GET", "/", http.NoBody)
		r.RemoteAddr = "127.0.0.1:9"
		r.Header.Set(wire.ServiceHeader, "echo")
		r.Header["X-Request-Id"] = c.given
		r.Header["X_request_id"], r.Header["X-Request_id"] = []string{"cgi"}, []string{"cgi"}
		x.handler.ServeHTTP(httptest.NewRecorder(), r)
		sent := <-seen
		line := x.kept()[0]["ringway.request.id"]
		if len(sent) != 1 || sent[0] != line || (slices.Contains(c.given, sent[0]) != c.kept) {
			t.Errorf("%s: the service got %q, the record has %q", c.name, sent, line)
		}
	}

	// Without a file nothing is changed, also while a tap is open.
	x := recording(t, func(c *ingress.Config) {
		log, err := requestlog.New(requestlog.Config{Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := log.Tap("echo", requestlog.Filter{}); !ok {
			t.Fatal("no tap")
		}
		c.Records = log
	}, service)
	for _, given := range []string{"", "mine"} {
		x.ask(t.Context(), clientOf(t, 1), "GET", "/", "", "X-Request-Id: "+given)
		if sent := <-seen; cmp.Or(strings.Join(sent, ""), "") != given {
			t.Errorf("without a file the service got %q of %q", sent, given)
		}
	}
}

// The service may have nothing to send yet, so it is not blamed, and the time of a request is no
// limit. But nothing holds a place without a byte for longer than the progress timeout.
func TestAStreamThatIsIdleBeforeItsAnswerEndsAndNoServiceIsBlamed(t *testing.T) {
	t.Parallel()
	left := make(chan struct{}, 1)
	x := recording(t, func(c *ingress.Config) { c.Timeout, c.Progress = time.Second, 1300*time.Millisecond }, upstream.Config{Protocol: advertise.H2C, Address: h2cService(t, func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		left <- struct{}{}
	})})
	for kind, want := range map[string]map[string]any{
		"application/grpc": {"http.response.status_code": 200.0, "rpc.response.status_code": "UNAVAILABLE", "error.type": "timeout"},
		"text/plain":       {"http.response.status_code": 504.0, "error.type": "timeout"},
	} {
		body, send := io.Pipe()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+x.addr+"/", body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(wire.ServiceHeader, "echo")
		req.Header.Set("Content-Type", kind)
		resp, err := clientOf(t, 2).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		_ = send.Close()
		select {
		case <-left:
		case <-time.After(procs.Patience):
			t.Fatalf("%s: the request has not ended at the service", kind)
		}
		got := x.next()
		for name, value := range want {
			if got[name] != value {
				t.Errorf("%s: %s is %v, want %v", kind, name, got[name], value)
			}
		}
	}
	if s := x.service.Endpoints.Stats(0)[0]; s.Failures != 0 {
		t.Errorf("%+v", s)
	}
}
