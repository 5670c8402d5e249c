package relay

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ringway/ringway/internal/relay/tracing/tracingtest"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/membership/identity"
)

func TestATraceGoesFromTheClientOverBothRelaysToTheWorker(t *testing.T) {
	t.Parallel()
	collector := tracingtest.New(t)
	f := newFleet(t)
	traced := func(s *Settings) { s.Tracing.Endpoint, s.Tracing.SampleRatio = collector.URL(), 0 }
	affine := f.relay(traced)
	gate := f.relay(func(s *Settings) { traced(s); s.Role = identity.RoleGate })
	got := make(chan http.Header, 1)
	backend := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Header.Clone() }))
	t.Cleanup(backend.Close)
	f.worker("w1", service("echo", backend))
	affine.settled(t, "echo", 1)
	gate.settled(t, "echo", 1)
	gate.await(t, "its way to the relay", func() bool { d := gate.forwarding(t); return d.Forwarding != nil && len(d.Forwarding.Primaries) == 1 })

	const callers, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	resp, body := gate.call(t, "GET", "/", nil, wire.ServiceHeader+": echo", "traceparent: 00-"+callers+"-"+span+"-01", "tracestate: a=1", "tracestate: b=2", "baggage: who=me")
	if resp.StatusCode != 200 {
		t.Fatal(resp.Status, body)
	}
	worker := <-got
	spans := collector.Await(4)
	at := func(process, name string) tracingtest.Span {
		t.Helper()
		for _, s := range spans {
			if s.Process == process && s.Name == name {
				return s
			}
		}
		t.Fatalf("%s sent no span %q: %+v", process, name, spans)
		return tracingtest.Span{}
	}
	parent := span
	for _, s := range []tracingtest.Span{at(gate.id, "relay echo"), at(gate.id, "forward echo"), at(affine.id, "relay echo"), at(affine.id, "upstream echo")} {
		if s.Trace != callers || s.Parent != parent || s.State != "a=1,b=2" || s.Failed {
			t.Errorf("%s of %s: trace %s %q, parent %s, want %s", s.Name, s.Process, s.Trace, s.State, s.Parent, parent)
		}
		parent = s.ID
	}
	if len(spans) != 4 {
		t.Errorf("%d spans: %+v", len(spans), spans)
	}
	if got := at(gate.id, "relay echo").Attributes["ringway.chosen"]; got != affine.id {
		t.Errorf("the gate chose %q", got)
	}
	if got, want := worker.Get("Traceparent"), "00-"+callers+"-"+parent+"-01"; got != want {
		t.Errorf("the worker got %q, want %q", got, want)
	}
	if worker.Get("Tracestate") != "a=1,b=2" || worker.Get("Baggage") != "who=me" {
		t.Errorf("the worker got %v", worker)
	}
}

// The queue is sent by a stop, not only by its delay.
func TestAStopSendsTheLastSpans(t *testing.T) {
	t.Parallel()
	collector := tracingtest.New(t)
	f := newFleet(t)
	r := f.relay(func(s *Settings) { s.Tracing.Endpoint, s.Tracing.SampleRatio = collector.URL(), 1 })
	r.await(t, "its readiness", func() bool { return len(r.Reasons()) == 0 })
	r.call(t, "GET", "/", nil, wire.ServiceHeader+": absent")
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if spans := collector.Spans(); len(spans) != 1 || spans[0].Attributes["error.type"] != "no_endpoint" {
		t.Errorf("%+v\n%s", spans, r.log)
	}
}

func TestACollectorThatIsNoURLIsRefused(t *testing.T) {
	_, err := load(t, "--otlp-endpoint", "127.0.0.1:4318", "--trace-sample-ratio", "2")
	for _, want := range []string{"otlp-endpoint", "http:// or https://", "trace-sample-ratio", "0 to 1"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: no word of %q", err, want)
		}
	}
}
