package tracingtest

import (
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Span is one span that arrived. IDs are hexadecimal, Parent is empty for a root.
type Span struct {
	Name, Trace, ID, Parent string
	Kind                    trace.Span_SpanKind
	// Process is the service.instance.id of the sender.
	Process string
	// Attributes, also those of events, are in text form; lists have brackets.
	Attributes map[string]string
	Events     []Event
	Failed     bool
	State      string
}

// Event is one event of a span.
type Event struct {
	Name       string
	Attributes map[string]string
}

// Collector receives spans.
type Collector struct {
	server *httptest.Server
	tb     testing.TB

	mu    sync.Mutex
	spans []Span
	away  bool
	paths map[string]bool
}

// New starts a collector that ends with the test.
func New(tb testing.TB) *Collector {
	tb.Helper()
	c := &Collector{tb: tb, paths: map[string]bool{}}
	c.server = httptest.NewServer(c)
	tb.Cleanup(c.server.Close)
	return c
}

// URL returns the endpoint of the collector.
func (c *Collector) URL() string { return c.server.URL }

// Away makes the collector refuse all requests, or accept them again.
func (c *Collector) Away(away bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.away = away
}

// Paths returns the paths of all requests.
func (c *Collector) Paths() map[string]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.paths
}

// Spans returns all spans that have arrived.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Span(nil), c.spans...)
}

// Await waits until n spans have arrived.
func (c *Collector) Await(n int) []Span {
	c.tb.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		spans := c.Spans()
		if len(spans) >= n {
			return spans
		}
		if time.Now().After(deadline) {
			c.tb.Fatalf("%d spans have arrived, %d should: %+v", len(spans), n, spans)
		}
		time.Sleep(5 * time.Millisecond) // polls a state
	}
}

// ServeHTTP receives one message.
func (c *Collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var message collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &message)
	}
	if err != nil {
		c.tb.Errorf("the collector cannot read a request: %v", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paths[r.URL.Path] = true
	if c.away {
		w.WriteHeader(http.StatusBadRequest) // a permanent error: a 503 would be tried again
		return
	}
	for _, resource := range message.ResourceSpans {
		process := texts(resource.Resource.GetAttributes())["service.instance.id"]
		for _, scope := range resource.ScopeSpans {
			for _, s := range scope.Spans {
				c.spans = append(c.spans, spanOf(s, process))
			}
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func spanOf(s *trace.Span, process string) Span {
	span := Span{
		Name: s.Name, Trace: hex.EncodeToString(s.TraceId), ID: hex.EncodeToString(s.SpanId), Parent: hex.EncodeToString(s.ParentSpanId),
		Kind: s.Kind, Process: process, Attributes: texts(s.Attributes), State: s.TraceState,
		Failed: s.Status.GetCode() == trace.Status_STATUS_CODE_ERROR,
	}
	for _, e := range s.Events {
		span.Events = append(span.Events, Event{e.Name, texts(e.Attributes)})
	}
	return span
}

func texts(attributes []*common.KeyValue) map[string]string {
	out := make(map[string]string, len(attributes))
	for _, a := range attributes {
		out[a.Key] = text(a.Value)
	}
	return out
}

func text(v *common.AnyValue) string {
	switch of := v.GetValue().(type) {
	case *common.AnyValue_StringValue:
		return of.StringValue
	case *common.AnyValue_IntValue:
		return fmt.Sprint(of.IntValue)
	case *common.AnyValue_BoolValue:
		return fmt.Sprint(of.BoolValue)
	case *common.AnyValue_ArrayValue:
		var out []string
		for _, each := range of.ArrayValue.GetValues() {
			out = append(out, text(each))
		}
		return fmt.Sprint(out)
	}
	return fmt.Sprint(v.GetValue())
}
