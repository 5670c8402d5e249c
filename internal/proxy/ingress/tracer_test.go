package ingress_test

import (
	"context"
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
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/relay/tracing"
	"github.com/ringway/ringway/internal/relay/tracing/tracingtest"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/wire"
)

// traced is a handler whose requests are traced, in front of workers w1, w2, … at
// addresses; it prefers them in that order.
type traced struct {
	*ingress.Handler
	collector *tracingtest.Collector
}

// tracedTo traces the given share of requests.
func tracedTo(t *testing.T, ratio float64, addresses ...string) traced {
	t.Helper()
	collector := tracingtest.New(t)
	spans, err := tracing.Start(tracing.Config{
		Endpoint: collector.URL(), SampleRatio: ratio, Delay: time.Millisecond,
		Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = spans.Close(context.Background()) })
	return traced{handlerTo(t, tracing.Requests(spans.Tracer()), addresses...), collector}
}

func handlerTo(t *testing.T, tracer ingress.Tracer, addresses ...string) *ingress.Handler {
	t.Helper()
	f := newFront(t, 0, http.NotFoundHandler())
	route := &routing.Route{}
	var order []string
	for i, addr := range addresses {
		pool, err := upstream.NewPool(upstream.Config{Address: addr})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		node := "w" + string(rune('1'+i))
		order = append(order, node)
		route.Range = append(route.Range, &routing.Target{ID: node + ".1", Node: node, Address: addr, Weight: 1, Pool: pool})
	}
	if err := f.SetRoute(route, 0); err != nil {
		t.Fatal(err)
	}
	f.choose("ordered;preferred=" + strings.Join(order, ","))
	return ingress.New(ingress.Config{
		Self: "r1", Services: one{f.Service}, Epoch: f.epoch, Requests: ingress.Requests{Timeout: time.Minute, MaxAttempts: 5, RetryBudget: 1, MaxInFlight: 1},
		Tracer: tracer, Metrics: ingress.NewMetrics(prometheus.NewRegistry()), Logger: slog.New(slog.DiscardHandler),
	})
}

// headers keeps what the last request brought.
type headers struct {
	mu     sync.Mutex
	last   http.Header
	status int
}

func (h *headers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = r.Header.Clone()
	if h.status != 0 {
		w.WriteHeader(h.status)
	}
	_, _ = io.WriteString(w, "done")
}

func (h *headers) of(name string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last[name]
}

func endpoint(t *testing.T, h http.Handler) string {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

func ask(h http.Handler, service string, fields ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", "/", http.NoBody)
	r.Header.Set(wire.ServiceHeader, service)
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		r.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func named(spans []tracingtest.Span, name string) (found []tracingtest.Span) {
	for _, s := range spans {
		if s.Name == name {
			found = append(found, s)
		}
	}
	slices.SortFunc(found, func(a, b tracingtest.Span) int {
		return strings.Compare(a.Attributes["ringway.attempt"], b.Attributes["ringway.attempt"])
	})
	return found
}

const (
	callersTrace = "0af7651916cd43dd8448eb211c80319c"
	callersSpan  = "b7ad6b7169203331"
	callers      = "00-" + callersTrace + "-" + callersSpan + "-01"
)

func TestARequestIsASpanOfItsCallersTraceAndEachAttemptOneBelowIt(t *testing.T) {
	var seen headers
	h := tracedTo(t, 0, procs.Refusing(t), endpoint(t, &seen))
	if w := ask(h, "echo", "traceparent: "+callers, "tracestate: a=1,b=2", "baggage: who=me"); w.Code != 200 {
		t.Fatal(w.Code, w.Body)
	}
	spans := h.collector.Await(3)
	requests, attempts := named(spans, "relay echo"), named(spans, "upstream echo")
	if len(requests) != 1 || len(attempts) != 2 {
		t.Fatalf("%+v", spans)
	}
	request := requests[0]
	for _, s := range spans {
		if s.Trace != callersTrace || s.State != "a=1,b=2" {
			t.Errorf("%s is of trace %s %q", s.Name, s.Trace, s.State)
		}
	}
	if request.Parent != callersSpan || request.Kind != otlp.Span_SPAN_KIND_SERVER || request.Failed {
		t.Errorf("%+v", request)
	}
	has(t, request, map[string]string{
		"ringway.relay": "r1", "ringway.service": "echo", "ringway.strategy": "ordered;preferred=w1,w2", "ringway.chosen": "w2", "ringway.attempts": "2",
		"ringway.outcome": "2xx", "http.response.status_code": "200", "http.request.method": "GET", "ringway.hop": "false",
	})
	if len(request.Events) != 1 || request.Events[0].Name != "attempt failed" || request.Events[0].Attributes["ringway.chosen"] != "w1" ||
		request.Events[0].Attributes["ringway.stage"] != "dial" || request.Events[0].Attributes["exception.message"] == "" {
		t.Errorf("events %+v", request.Events)
	}
	first, second := attempts[0], attempts[1]
	for _, a := range attempts {
		if a.Parent != request.ID || a.Kind != otlp.Span_SPAN_KIND_CLIENT {
			t.Errorf("%+v", a)
		}
	}
	has(t, first, map[string]string{"ringway.attempt": "1", "ringway.chosen": "w1", "ringway.stage": "dial", "ringway.candidates": "[w1 0 (usable) w2 1 (usable)]"})
	if !first.Failed || len(first.Events) != 1 || first.Events[0].Name != "exception" || second.Failed {
		t.Errorf("first %+v, second %+v", first, second)
	}
	has(t, second, map[string]string{"ringway.attempt": "2", "ringway.chosen": "w2", "http.response.status_code": "200"})

	if got := seen.of("Traceparent"); !slices.Equal(got, []string{"00-" + callersTrace + "-" + second.ID + "-01"}) {
		t.Errorf("the worker got %q", got)
	}
	if got := append(seen.of("Tracestate"), seen.of("Baggage")...); !slices.Equal(got, []string{"a=1,b=2", "who=me"}) {
		t.Errorf("the worker got %q", got)
	}
}

func has(t *testing.T, s tracingtest.Span, want map[string]string) {
	t.Helper()
	for key, value := range want {
		if got := s.Attributes[key]; got != value {
			t.Errorf("%s: %s is %q, want %q", s.Name, key, got, value)
		}
	}
}

func TestARequestThatIsNotSampledPassesThatToTheWorkerAndExportsNothing(t *testing.T) {
	var seen headers
	h := tracedTo(t, 0, endpoint(t, &seen))
	for _, parent := range []string{"", strings.TrimSuffix(callers, "01") + "00", "garbage"} {
		ask(h, "echo", "traceparent: "+parent, "tracestate: of=absent")
		got := seen.of("Traceparent")
		if len(got) != 1 || !strings.HasSuffix(got[0], "-00") || got[0] == parent {
			t.Errorf("%q became %q", parent, got)
		}
		if strings.HasPrefix(parent, "00-") != strings.Contains(got[0], callersTrace) {
			t.Errorf("%q became %q", parent, got)
		}
		if state := seen.of("Tracestate"); (len(state) > 0) != strings.HasPrefix(parent, "00-") {
			t.Errorf("%q: the state of another trace is passed on: %q", parent, state)
		}
	}
	ask(h, "echo", "traceparent: "+callers)
	if spans := h.collector.Await(2); len(spans) != 2 {
		t.Errorf("%+v", spans)
	}
}

// A list in several fields is one list: https://www.w3.org/TR/trace-context/#tracestate-header.
func TestSeveralFieldsOfATracesStateAreOneList(t *testing.T) {
	var seen headers
	h := tracedTo(t, 0, endpoint(t, &seen))
	ask(h, "echo", "traceparent: "+callers, "tracestate: a=1", "tracestate: b=2,c=3")
	for _, s := range h.collector.Await(2) {
		if s.State != "a=1,b=2,c=3" {
			t.Errorf("%s has the state %q", s.Name, s.State)
		}
	}
	if got := seen.of("Tracestate"); !slices.Equal(got, []string{"a=1,b=2,c=3"}) {
		t.Errorf("the worker got %q", got)
	}
}

// The request log names no caller's trace then either.
func TestTwoCallersTracesAreNone(t *testing.T) {
	var seen headers
	h := tracedTo(t, 0, endpoint(t, &seen))
	ask(h, "echo", "traceparent: "+callers, "traceparent: "+callers, "tracestate: a=1")
	got := seen.of("Traceparent")
	if len(got) != 1 || strings.Contains(got[0], callersTrace) || !strings.HasSuffix(got[0], "-00") || seen.of("Tracestate") != nil {
		t.Errorf("the worker got %q, %q", got, seen.of("Tracestate"))
	}
}

// Without tracing a relay is no part of any trace.
func TestWithoutTracingTheHeadersOfTracesPassUnchanged(t *testing.T) {
	var seen headers
	h := handlerTo(t, nil, endpoint(t, &seen))
	ask(h, "echo", "traceparent: "+callers, "tracestate: a=1", "tracestate: b=2", "baggage: who=me")
	for name, want := range map[string][]string{"Traceparent": {callers}, "Tracestate": {"a=1", "b=2"}, "Baggage": {"who=me"}} {
		if got := seen.of(name); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	ask(h, "echo")
	if got := seen.of("Traceparent"); got != nil {
		t.Errorf("a trace was begun: %q", got)
	}
}

func TestHowARequestEndedIsInItsSpan(t *testing.T) {
	for _, c := range []struct {
		name, service string
		addr          string
		want          map[string]string
		failed        bool
		spans         int
	}{
		{"no listener", "echo", procs.Refusing(t), map[string]string{"ringway.outcome": "failed", "error.type": "upstream_failed", "http.response.status_code": "502", "ringway.attempts": "1"}, true, 2},
		{"the worker's own failure", "echo", endpoint(t, &headers{status: 500}), map[string]string{"ringway.outcome": "5xx", "http.response.status_code": "500", "error.type": ""}, true, 2},
		{"the worker's refusal", "echo", endpoint(t, &headers{status: 404}), map[string]string{"ringway.outcome": "4xx", "http.response.status_code": "404"}, false, 2},
		{"a broken answer", "echo", endpoint(t, broken{}), map[string]string{"ringway.outcome": "aborted"}, true, 2},
		{"an unknown service", "absent", procs.Refusing(t), map[string]string{"ringway.outcome": "failed", "error.type": "unknown_service", "http.response.status_code": "404"}, false, 1},
		{"no service", "", procs.Refusing(t), map[string]string{"error.type": "bad_request", "http.response.status_code": "400"}, false, 1},
	} {
		h := tracedTo(t, 1, c.addr)
		func() {
			defer func() { _ = recover() }() // as net/http does of an aborted answer
			ask(h, c.service)
		}()
		spans := h.collector.Await(c.spans)
		request := named(spans, strings.TrimSpace("relay "+c.service))
		if len(spans) != c.spans || len(request) != 1 {
			request = named(spans, "relay "+c.service)
		}
		if len(spans) != c.spans || len(request) != 1 {
			t.Fatalf("%s: %+v", c.name, spans)
		}
		has(t, request[0], c.want)
		if request[0].Failed != c.failed {
			t.Errorf("%s: failed is %v", c.name, request[0].Failed)
		}
	}
}

// broken ends its answers too early.
type broken struct{}

func (broken) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "100")
	_, _ = io.WriteString(w, "half")
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

func TestARequestTooManyIsInATraceToo(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	h := tracedTo(t, 1, endpoint(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(entered)
		<-leave
	})))
	var first sync.WaitGroup
	first.Go(func() { ask(h, "echo") })
	<-entered
	if w := ask(h, "echo"); w.Code != 503 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	spans := h.collector.Await(1)
	close(leave)
	first.Wait()
	has(t, spans[0], map[string]string{"ringway.service": "echo", "error.type": "overloaded", "http.response.status_code": "503"})
	if !spans[0].Failed {
		t.Errorf("%+v", spans[0])
	}
}

// A collector's message is one piece: bytes that protobuf refuses in one span lose all spans of it.
func TestANameThatIsNoTextLosesNoSpan(t *testing.T) {
	collector := tracingtest.New(t)
	spans, err := tracing.Start(tracing.Config{
		Endpoint: collector.URL(), Delay: time.Hour, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	h := handlerTo(t, tracing.Requests(spans.Tracer()), endpoint(t, &headers{}))
	cut := strings.Repeat("a", 79)
	for _, service := range []string{"\xff", cut + "ä", "echo"} {
		ask(h, service, "traceparent: "+callers)
	}
	if err := spans.Close(t.Context()); err != nil {
		t.Error(err)
	}
	got := collector.Spans()
	for _, name := range []string{"relay \uFFFD", "relay " + cut + "\uFFFD", "relay echo", "upstream echo"} {
		if len(named(got, name)) != 1 {
			t.Errorf("no span %q: %+v", name, got)
		}
	}
}

func TestManyCandidatesAreCutInASpan(t *testing.T) {
	addresses := slices.Repeat([]string{endpoint(t, &headers{})}, 9)
	h := tracedTo(t, 1, addresses...)
	ask(h, "echo")
	upstream := named(h.collector.Await(2), "upstream echo")
	if got := upstream[0].Attributes["ringway.candidates"]; !strings.HasSuffix(got, "w8 7 (usable)]") {
		t.Errorf("%s", got)
	}
}
