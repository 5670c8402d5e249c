package tracing_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/ringway/ringway/internal/logtest"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/relay/tracing"
	"github.com/ringway/ringway/internal/relay/tracing/tracingtest"
	"github.com/ringway/ringway/internal/routing"
)

// start returns a pipeline to endpoint that ends with the test.
func start(t *testing.T, cfg tracing.Config) *tracing.Tracing {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Registerer == nil {
		cfg.Registerer = prometheus.NewRegistry()
	}
	cfg.Delay = time.Millisecond
	tr, err := tracing.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tr.Close(context.Background()) })
	return tr
}

func TestSpansReachTheCollectorWithTheResource(t *testing.T) {
	for _, path := range []string{"", "/", "/v1/traces", "/elsewhere/traces"} {
		c := tracingtest.New(t)
		tr := start(t, tracing.Config{Endpoint: c.URL() + path, SampleRatio: 1, Resource: []attribute.KeyValue{attribute.String("service.instance.id", "r1")}})
		_, span := tr.Tracer().Start(t.Context(), "one")
		span.End()
		got := c.Await(1)
		if got[0].Name != "one" || got[0].Process != "r1" {
			t.Errorf("%q: %+v", path, got)
		}
		want := path
		if strings.Trim(path, "/") == "" {
			want = "/v1/traces"
		}
		if !c.Paths()[want] {
			t.Errorf("%q: asked for %v", path, c.Paths())
		}
	}
}

func TestTheRatioCountsUnlessTheCallerHasDecided(t *testing.T) {
	caller := func(flags trace.TraceFlags) context.Context {
		return trace.ContextWithRemoteSpanContext(context.Background(), trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: flags, Remote: true,
		}))
	}
	for _, c := range []struct {
		name  string
		ratio float64
		ctx   context.Context
		least int
		most  int
	}{
		{"none of many", 0, context.Background(), 0, 0},
		{"all", 1, context.Background(), 2000, 2000},
		{"one in ten", 0.1, context.Background(), 100, 320},
		{"the caller traces", 0, caller(trace.FlagsSampled), 2000, 2000},
		{"the caller does not", 1, caller(0), 0, 0},
	} {
		tr := start(t, tracing.Config{Endpoint: "http://127.0.0.1:1", SampleRatio: c.ratio})
		sampled := 0
		for range 2000 {
			_, span := tr.Tracer().Start(c.ctx, "one")
			if span.SpanContext().IsSampled() {
				sampled++
			}
			// Not ended: no collector accepts it.
		}
		if sampled < c.least || sampled > c.most {
			t.Errorf("%s: %d of 2000 are traced, want %d to %d", c.name, sampled, c.least, c.most)
		}
	}
}

func TestACollectorThatIsAwayIsLoggedOnceAndItsSpansAreCounted(t *testing.T) {
	c, out, reg := tracingtest.New(t), &logtest.Log{}, prometheus.NewRegistry()
	tr := start(t, tracing.Config{Endpoint: c.URL(), SampleRatio: 1, Logger: slog.New(slog.NewTextHandler(out, nil)), Registerer: reg})
	spans := func(n int, sent, failed string) {
		t.Helper()
		for range n {
			_, span := tr.Tracer().Start(t.Context(), "one")
			span.End()
		}
		text := "# HELP ringway_trace_spans_total Spans that ended, by result: sent to the collector, failed to be sent, dropped because the queue was full.\n# TYPE ringway_trace_spans_total counter\n" +
			"ringway_trace_spans_total{result=\"dropped\"} 0\nringway_trace_spans_total{result=\"failed\"} " + failed + "\nringway_trace_spans_total{result=\"sent\"} " + sent + "\n"
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) { // polls a state
			err := testutil.GatherAndCompare(reg, strings.NewReader(text))
			if err == nil {
				return
			}
			if time.Now().After(deadline) {
				t.Fatal(err)
			}
		}
	}
	spans(1, "1", "0")
	c.Away(true)
	spans(1, "1", "1")
	spans(1, "1", "2")
	c.Away(false)
	spans(1, "2", "2")
	spans(1, "3", "2")
	if away, back := out.Lines("cannot be sent"), out.Lines("takes spans again"); away != 1 || back != 1 {
		t.Errorf("said %d times that it is away and %d times that it is back:\n%s", away, back, out.String())
	}
}

func TestSpansThatAFullQueueDropsAreCountedAndLoggedOnce(t *testing.T) {
	asked, answer := make(chan struct{}, 100), make(chan struct{})
	collector := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked <- struct{}{}
		<-answer
	}))
	defer collector.Close()
	out, reg := &logtest.Log{}, prometheus.NewRegistry()
	tr := start(t, tracing.Config{Endpoint: collector.URL, SampleRatio: 1, Logger: slog.New(slog.NewTextHandler(out, nil)), Registerer: reg})
	const queue, ended = 4096, 5000
	end := func(n int) {
		for range n {
			_, span := tr.Tracer().Start(t.Context(), "one")
			span.End()
		}
	}
	end(1)
	<-asked
	end(ended - 1)
	count := func() map[string]float64 { return logtest.Series(t, reg, "ringway_trace_spans_total") }
	if got := count(); got["dropped"] != ended-queue || got["sent"] != 0 {
		t.Errorf("while the collector does not answer: %v", got)
	}
	close(answer)
	if err := tr.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if got := count(); got["dropped"] != ended-queue || got["sent"] != queue || got["failed"] != 0 {
		t.Errorf("after the end: %v", got)
	}
	if n := out.Lines("dropped"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, out.String())
	}
}

func TestAStopSendsWhatWaitsAndDoesNotWaitForACollectorThatHangs(t *testing.T) {
	c := tracingtest.New(t)
	cfg := tracing.Config{Endpoint: c.URL(), SampleRatio: 1, Delay: time.Hour, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()}
	tr, err := tracing.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	_, span := tr.Tracer().Start(t.Context(), "one")
	span.End()
	if err := tr.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if got := c.Spans(); len(got) != 1 {
		t.Errorf("%d spans were sent by the stop", len(got))
	}

	// Its connections end with it.
	left := make(chan struct{}, 1)
	counting := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	counting.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			left <- struct{}{}
		}
	}
	counting.Start()
	defer counting.Close()
	cfg.Endpoint, cfg.Registerer = counting.URL, prometheus.NewRegistry()
	if tr, err = tracing.Start(cfg); err != nil {
		t.Fatal(err)
	}
	_, span = tr.Tracer().Start(t.Context(), "one")
	span.End()
	if err := tr.Close(t.Context()); err != nil {
		t.Error(err)
	}
	select {
	case <-left:
	case <-time.After(30 * time.Second):
		t.Error("the connection to the collector is still open")
	}

	silent := procs.Listen(t) // takes connections and sends nothing
	cfg.Endpoint, cfg.Registerer = "http://"+silent.Addr().String(), prometheus.NewRegistry()
	if tr, err = tracing.Start(cfg); err != nil {
		t.Fatal(err)
	}
	_, span = tr.Tracer().Start(t.Context(), "one")
	span.End()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	_ = tr.Close(ctx)
	if took := time.Since(began); took > 9*time.Second { // the exporter's own patience is 10 s
		t.Errorf("the stop took %v", took)
	}
}

// An error may quote what a client or a service has sent.
func TestTheTextOfAFailureThatIsNoTextLosesNoSpan(t *testing.T) {
	c := tracingtest.New(t)
	tr := start(t, tracing.Config{Endpoint: c.URL(), SampleRatio: 1})
	spans := tracing.Requests(tr.Tracer()).Begin(httptest.NewRequest("GET", "/", http.NoBody), ingress.TracedRequest{Relay: "r1", Service: "echo", Caller: "c\xff"})
	spans.Attempt(ingress.TracedAttempt{Node: "w\xff", Address: "a\xff", Decision: &routing.Decision{Candidates: []routing.Candidate{{Node: "w\xff", Note: "n\xff"}}}})
	spans.Failed("head", errors.New("bad answer \xff"))
	spans.End(ingress.TracedEnd{Outcome: "failed"})
	for _, s := range c.Await(2) {
		for _, e := range s.Events {
			if got := e.Attributes["exception.message"]; got != "bad answer \uFFFD" {
				t.Errorf("%s: %s has %q", s.Name, e.Name, got)
			}
		}
	}
}

func TestAnEndpointThatIsNoneIsRefusedWithTheRemedy(t *testing.T) {
	for endpoint, want := range map[string]string{
		"127.0.0.1:4318": "URL", "ftp://x": `scheme is "ftp"`, "http://": "no host", "": "scheme", "http://u:secret@x": "OTEL_EXPORTER_OTLP_HEADERS",
	} {
		err := tracing.CheckEndpoint(endpoint)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", endpoint, err, want)
		}
		if _, err := tracing.Start(tracing.Config{Endpoint: endpoint}); err == nil || !strings.Contains(err.Error(), "http://127.0.0.1:4318") {
			t.Errorf("%q: %v", endpoint, err)
		}
	}
	for _, good := range []string{"http://127.0.0.1:4318", "https://collector.example:443/v1/traces"} {
		if err := tracing.CheckEndpoint(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
}
