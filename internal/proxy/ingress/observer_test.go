package ingress_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/logtest"
	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/relay/tracing"
	"github.com/ringway/ringway/internal/relay/tracing/tracingtest"
)

// An operator who finds a reason in one of them looks for it in the others.
func TestAFailureHasTheSameReasonInTheRecordTheSpansAndTheMetrics(t *testing.T) {
	answers := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }
	for reason, fails := range map[string]func(*testing.T) upstream.Config{
		"dial": refusing,
		"head": func(t *testing.T) upstream.Config {
			return worker(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
		},
		"refused": func(t *testing.T) upstream.Config {
			return upstream.Config{Address: refusingStreams(t, 1), Protocol: advertise.H2C}
		},
		"local": func(*testing.T) upstream.Config {
			return upstream.Config{Address: "192.0.2.1:1", Dial: func(context.Context, string, string) (net.Conn, error) {
				return nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("socket", syscall.EMFILE)}
			}}
		},
	} {
		t.Run(reason, func(t *testing.T) {
			collector, registry := tracingtest.New(t), prometheus.NewRegistry()
			exporter, err := tracing.Start(tracing.Config{
				Endpoint: collector.URL(), SampleRatio: 1, Delay: time.Millisecond, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = exporter.Close(context.Background()) })
			x := recording(t, func(c *ingress.Config) {
				c.Tracer, c.Metrics = tracing.Requests(exporter.Tracer()), ingress.NewMetrics(registry)
			}, fails(t), worker(t, answers))
			if resp, body := x.ask(t.Context(), clientOf(t, 1), http.MethodGet, "/", ""); resp == nil || body != "hello" {
				t.Fatalf("%v %s", resp, body)
			}
			attempts, _ := x.next()["ringway.attempts"].([]any)
			if len(attempts) != 2 || attempts[0].(map[string]any)["failure"] != reason || attempts[0].(map[string]any)["error"] != true {
				t.Errorf("the record has %v", attempts)
			}
			spans := collector.Await(3)
			request, tried := named(spans, "relay echo"), named(spans, "upstream echo")
			if len(request) != 1 || len(tried) != 2 || len(request[0].Events) != 1 {
				t.Fatalf("%+v", spans)
			}
			has(t, tried[0], map[string]string{"ringway.stage": reason})
			if got := request[0].Events[0].Attributes["ringway.stage"]; got != reason {
				t.Errorf("the event of the request has %q", got)
			}
			for labels, n := range logtest.Series(t, registry, "ringway_relay_retries_total") {
				if (n == 1) != strings.Contains(","+labels+",", ","+reason+",") || n > 1 {
					t.Errorf("%v retries of %s", n, labels)
				}
			}
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range families {
				if h := f.GetMetric()[0].GetHistogram(); f.GetName() == "ringway_relay_request_attempts" && (h.GetSampleCount() != 1 || h.GetSampleSum() != 2) {
					t.Errorf("the metrics have %v attempts of %d requests", h.GetSampleSum(), h.GetSampleCount())
				}
			}
		})
	}
}
