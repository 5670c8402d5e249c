package tracing

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/ringway/ringway/internal/metric"
)

// Config configures where spans are sent.
type Config struct {
	// Endpoint is the collector's URL for OTLP over HTTP. Without a path, /v1/traces is
	// used. If it is empty there is no tracing, and Start is not called.
	Endpoint string
	// SampleRatio is the share, 0 to 1, of requests that are traced among those whose caller
	// has not decided. A caller's decision is always kept.
	SampleRatio float64
	// Resource describes this process; all its spans carry it.
	Resource []attribute.KeyValue
	// Delay is how long spans wait to be sent in a batch. Default 1 s.
	Delay time.Duration
	// Logger reports when the collector cannot be reached, and when it can be reached again.
	// Required.
	Logger *slog.Logger
	// Registerer takes the metrics. Required.
	Registerer prometheus.Registerer
}

const (
	// queueSize is the maximum number of waiting spans: some seconds of a busy relay.
	queueSize = 4096
	// exportTimeout bounds one batch, including its retries.
	exportTimeout = 10 * time.Second
	// instrumentation is the name of the library that makes the spans.
	instrumentation = "github.com/ringway/ringway"
	tracesPath      = "/v1/traces"
)

// Tracing is a running pipeline of spans.
type Tracing struct {
	client   *http.Client
	provider *sdk.TracerProvider
}

// CheckEndpoint returns the error in a collector's URL, nil if there is none.
func CheckEndpoint(endpoint string) error {
	_, err := tracesURL(endpoint)
	return err
}

func tracesURL(endpoint string) (string, error) {
	u, err := url.Parse(endpoint)
	switch {
	case err != nil:
		return "", fmt.Errorf("not a URL: %w", err)
	case u.Scheme != "http" && u.Scheme != "https":
		return "", fmt.Errorf("its scheme is %q", u.Scheme)
	case u.Host == "":
		return "", fmt.Errorf("it has no host")
	case u.User != nil:
		return "", fmt.Errorf("it has a user, which would be shown: the environment variable OTEL_EXPORTER_OTLP_HEADERS is for secrets")
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = tracesPath
	}
	return u.String(), nil
}

// Start begins to send spans. A collector that does not answer is no error. Close ends it.
func Start(cfg Config) (*Tracing, error) {
	target, err := tracesURL(cfg.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("tracing: collector %q: %w: give a URL such as http://127.0.0.1:4318", cfg.Endpoint, err)
	}
	// A separate client, whose connections can be closed: those of the exporter stay open.
	client := &http.Client{Timeout: exportTimeout, Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSHandshakeTimeout: exportTimeout}}
	exporter, err := otlptracehttp.New(context.Background(), otlptracehttp.WithEndpointURL(target), otlptracehttp.WithHTTPClient(client))
	if err != nil {
		return nil, fmt.Errorf("tracing: collector %q: %w", cfg.Endpoint, err)
	}
	if cfg.Delay == 0 {
		cfg.Delay = time.Second
	}
	waiting, metrics := &waiting{}, newMetrics(cfg.Registerer)
	batches := sdk.NewBatchSpanProcessor(
		&reporter{SpanExporter: exporter, endpoint: target, logger: cfg.Logger, metrics: metrics, waiting: waiting},
		sdk.WithMaxQueueSize(queueSize), sdk.WithBatchTimeout(cfg.Delay), sdk.WithExportTimeout(exportTimeout),
	)
	return &Tracing{client, sdk.NewTracerProvider(
		sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(cfg.SampleRatio))),
		sdk.WithResource(resource.NewSchemaless(cfg.Resource...)),
		sdk.WithSpanProcessor(&queue{SpanProcessor: batches, waiting: waiting, dropped: metrics.dropped, logger: cfg.Logger}),
	)}, nil
}

// Tracer returns the tracer that makes spans.
func (t *Tracing) Tracer() trace.Tracer { return t.provider.Tracer(instrumentation) }

// Close sends the waiting spans until ctx ends. Spans that end later are lost.
func (t *Tracing) Close(ctx context.Context) error {
	defer t.client.CloseIdleConnections()
	if err := t.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("send the last spans to the collector: %w", err)
	}
	return nil
}

// reporter counts the results of exports and logs once that the collector does not answer.
// Without reporter, OpenTelemetry would print each failure outside of our log.
type reporter struct {
	sdk.SpanExporter
	endpoint string
	logger   *slog.Logger
	metrics  *metrics
	waiting  *waiting

	away bool // no lock, because exports run one at a time
}

// ExportSpans sends a batch. It returns no error, because no caller could handle one.
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
	r.waiting.remove(len(spans))
	return nil
}

type metrics struct{ sent, lost, dropped prometheus.Counter }

func newMetrics(reg prometheus.Registerer) *metrics {
	spans := metric.With(reg).CounterVec("ringway_trace_spans_total", "Spans that ended, by result: sent to the collector, failed to be sent, dropped because the queue was full.", "result")
	return &metrics{sent: spans.WithLabelValues("sent"), lost: spans.WithLabelValues("failed"), dropped: spans.WithLabelValues("dropped")}
}
