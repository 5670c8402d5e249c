package ingress

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/proxy/upstream"
	"github.com/ringway/ringway/internal/requestlog"
	"github.com/ringway/ringway/internal/routing"
)

// BenchmarkRecord is what a record adds to a request: nothing without a log, little outside
// of the sample, the line in the sample.
func BenchmarkRecord(b *testing.B) {
	for _, c := range []struct {
		name   string
		file   string
		record requestlog.Policy
	}{
		{"no log", "", requestlog.Policy{}}, {"outside of the sample", os.DevNull, requestlog.Policy{}}, {"outside of the sample, with the slowest", os.DevNull, requestlog.Policy{Slowest: 10}},
		{"1 of 100", os.DevNull, requestlog.Policy{Sample: 0.01, Slowest: 10}}, {"all", os.DevNull, requestlog.Policy{Sample: 1}},
	} {
		b.Run(c.name, func(b *testing.B) {
			log, err := requestlog.New(requestlog.Config{File: c.file, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
			if err != nil {
				b.Fatal(err)
			}
			if err := log.Start(); err != nil {
				b.Fatal(err)
			}
			defer func() { _ = log.Close() }()
			h := New(Config{Self: "r1", Epoch: time.Now(), Records: log, Requests: Requests{Record: c.record}, Metrics: NewMetrics(prometheus.NewRegistry())})
			r := httptest.NewRequest("GET", "/invoices/7", http.NoBody)
			w := httptest.NewRecorder()
			at := attempt{
				destination: destination{target: &routing.Target{Node: "w1", Address: "10.0.0.1:9000"}, by: "p2c"},
				sent:        time.Second, answered: time.Second + time.Millisecond,
			}
			result := upstream.Result{Status: 200, BytesOut: 128, Reused: true}
			b.ReportAllocs()
			for b.Loop() {
				rec := h.beginRecord(w, r, "echo")
				rec.carry(time.Second)
				rec.beginAttempt(&at, 0)
				rec.carried(&result)
				rec.answered(200, &at)
				rec.finished(2)
				rec.end()
			}
		})
	}
}
