package tracing

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// reporter counts what became of spans and says once that the collector is away.
// Without it OpenTelemetry would print each failure, past our log.
type reporter struct {
	sdk.SpanExporter
	endpoint string
	logger   *slog.Logger
	metrics  *metrics

	away bool // exports come one at a time
}

// ExportSpans sends a batch. It never fails: nobody could do anything about it.
func (r *reporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := r.SpanExporter.ExportSpans(ctx, spans)
	if err != nil {
		r.metrics.lost.Add(float64(len(spans)))
		if !r.away {
			r.logger.Warn("spans cannot be sent to the collector: they are dropped until it answers", "endpoint", r.endpoint, "err", err)
		}
	} else {
		r.metrics.sent.Add(float64(len(spans)))
		if r.away {
			r.logger.Info("the collector takes spans again", "endpoint", r.endpoint)
		}
	}
	r.away = err != nil
	return nil
}

type metrics struct{ sent, lost prometheus.Counter }

func newMetrics(reg prometheus.Registerer) *metrics {
	spans := promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
		Name: "ringway_trace_spans_total", Help: "Spans given to the collector, by result: sent, failed. Those that a full queue dropped are in neither.",
	}, []string{"result"})
	return &metrics{sent: spans.WithLabelValues("sent"), lost: spans.WithLabelValues("failed")}
}
