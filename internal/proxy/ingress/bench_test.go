package ingress_test

import (
	"bufio"
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/relay/tracing"
	"github.com/ringway/ringway/internal/requestlog"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/selection"
)

// one is the only service there is.
type one struct{ service *routing.Service }

func (o one) Service(name string) (*routing.Service, bool) {
	return o.service, o.service != nil && name == o.service.Name
}

// quickEndpoint answers every request on a keep-alive connection with 128 bytes,
// without allocating.
func quickEndpoint(tb testing.TB) string {
	tb.Helper()
	return repeating(tb, append([]byte("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 128\r\n\r\n"), make([]byte, 128)...))
}

// repeating gives each connection these answers, one after the other and then again, without
// allocating.
func repeating(tb testing.TB, answers ...[]byte) string {
	tb.Helper()
	ln := procs.Listen(tb)
	procs.Accept(tb, ln, func(conn net.Conn) {
		r := bufio.NewReader(conn)
		for n := 0; ; n++ {
			for blank := false; !blank; {
				line, err := r.ReadSlice('\n')
				if err != nil {
					return
				}
				blank = len(line) == 2
			}
			if _, err := conn.Write(answers[n%len(answers)]); err != nil {
				return
			}
		}
	})
	return ln.Addr().String()
}

func handlerFor(tb testing.TB, addr string, change ...func(*ingress.Config)) *ingress.Handler {
	tb.Helper()
	pool, err := upstream.NewPool(upstream.Config{Address: addr})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(pool.Close)
	service, err := routing.NewService("echo", selection.DefaultConfig())
	if err != nil {
		tb.Fatal(err)
	}
	targets := []*routing.Target{{ID: "w1.1", Node: "w1", Address: addr, Weight: 1, Pool: pool}, {ID: "w2.1", Node: "w2", Address: addr, Weight: 1, Pool: pool}}
	if err := service.SetRoute(&routing.Route{Range: targets}, 0); err != nil {
		tb.Fatal(err)
	}
	cfg := ingress.Config{
		Self: "r1", Services: one{service}, Epoch: time.Now(), Requests: ingress.Requests{Timeout: time.Minute, MaxAttempts: 5, MaxInFlight: 100}, Progress: time.Minute,
		Metrics: ingress.NewMetrics(prometheus.NewRegistry()), Logger: slog.New(slog.DiscardHandler),
	}
	for _, f := range change {
		f(&cfg)
	}
	return ingress.New(cfg)
}

// discard is a client that costs nothing.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(b []byte) (int, error) { return len(b), nil }
func (d discard) WriteHeader(int)             {}

// BenchmarkAdmission is what a request costs from the parsed head to the answer,
// without net/http's server: naming, admission, pick, carrying and feedback.
func BenchmarkAdmission(b *testing.B) {
	h := handlerFor(b, quickEndpoint(b))
	r := httptest.NewRequest("GET", "/", nil)
	r.Body = http.NoBody
	r.Header.Set(wire.ServiceHeader, "echo")
	w := discard{http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		clear(w.header)
		h.ServeHTTP(w, r)
	}
}

// BenchmarkAdmissionTraced is the same where requests are traced: those that are not
// drawn, and those that are. No collector takes the spans.
func BenchmarkAdmissionTraced(b *testing.B) {
	for name, ratio := range map[string]float64{"not sampled": 0, "sampled": 1} {
		b.Run(name, func(b *testing.B) {
			spans, err := tracing.Start(tracing.Config{
				Endpoint: "http://127.0.0.1:1", SampleRatio: ratio, Delay: time.Hour,
				Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
			})
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = spans.Close(context.Background()) }()
			h := handlerFor(b, quickEndpoint(b), func(cfg *ingress.Config) { cfg.Tracer = tracing.Requests(spans.Tracer()) })
			r := httptest.NewRequest("GET", "/", nil)
			r.Body = http.NoBody
			r.Header.Set(wire.ServiceHeader, "echo")
			w := discard{http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				clear(w.header)
				h.ServeHTTP(w, r)
			}
		})
	}
}

// BenchmarkAdmissionRecorded is the same with a request log, by the share of requests that
// is written.
func BenchmarkAdmissionRecorded(b *testing.B) {
	for name, sample := range map[string]float64{"none": 0, "1 of 100": 0.01, "all": 1} {
		b.Run(name, func(b *testing.B) {
			records, err := requestlog.New(requestlog.Config{File: os.DevNull, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
			if err != nil {
				b.Fatal(err)
			}
			if err := records.Start(); err != nil {
				b.Fatal(err)
			}
			defer func() { _ = records.Close() }()
			h := handlerFor(b, quickEndpoint(b), func(cfg *ingress.Config) { cfg.Records, cfg.Record.Sample = records, sample })
			r := httptest.NewRequest("GET", "/", nil)
			r.Body = http.NoBody
			r.Header.Set(wire.ServiceHeader, "echo")
			w := discard{http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				clear(w.header)
				h.ServeHTTP(w, r)
			}
		})
	}
}

// BenchmarkRefusal measures a request that no endpoint can take.
func BenchmarkRefusal(b *testing.B) {
	h := handlerFor(b, "127.0.0.1:1")
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set(wire.ServiceHeader, "absent")
	w := discard{http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		clear(w.header)
		h.ServeHTTP(w, r)
	}
}

// BenchmarkFailure measures a request whose two workers refuse the connection, with its record and
// its spans.
func BenchmarkFailure(b *testing.B) {
	refuses := upstream.Config{Address: "192.0.2.1:80", Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}}
	var targets []*routing.Target
	for _, node := range []string{"w1", "w2"} {
		pool, err := upstream.NewPool(refuses)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(pool.Close)
		targets = append(targets, &routing.Target{ID: node + ".1", Node: node, Address: refuses.Address, Weight: 1, Pool: pool})
	}
	service, err := routing.NewService("echo", selection.DefaultConfig())
	if err != nil {
		b.Fatal(err)
	}
	if err := service.SetRoute(&routing.Route{Range: targets}, 0); err != nil {
		b.Fatal(err)
	}
	records, err := requestlog.New(requestlog.Config{File: os.DevNull, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	if err != nil {
		b.Fatal(err)
	}
	if err := records.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() { _ = records.Close() }()
	for name, change := range map[string]func(*ingress.Config){
		"alone":       func(*ingress.Config) {},
		"with_record": func(c *ingress.Config) { c.Records, c.Record.Sample = records, 1 },
		"with_spans":  func(c *ingress.Config) { c.Tracer = tracing.Requests(noop.NewTracerProvider().Tracer("")) },
	} {
		b.Run(name, func(b *testing.B) {
			h := handlerFor(b, "127.0.0.1:1", func(c *ingress.Config) { c.Services, c.RetryBudget = one{service}, 1; change(c) })
			r := httptest.NewRequest("GET", "/", nil)
			r.Body = http.NoBody
			r.Header.Set(wire.ServiceHeader, "echo")
			w := discard{http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				clear(w.header)
				h.ServeHTTP(w, r)
			}
		})
	}
}
