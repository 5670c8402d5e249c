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
)

// Config says where spans go.
type Config struct {
	// Endpoint is the collector's URL for OTLP over HTTP. Without a path it is
	// /v1/traces. Empty: there is no tracing, and Start is not called.
	Endpoint string
	// SampleRatio is the share of requests that are traced, 0 to 1, of those whose
	// caller has not decided: its decision is kept, whatever it is.
	SampleRatio float64
	// Resource describes this process; all its spans carry it.
	Resource []attribute.KeyValue
	// Delay is how long spans wait for others. Default 1 s.
	Delay time.Duration
	// Logger gets a line when the collector cannot be reached, and when it can again.
	// Required.
	Logger *slog.Logger
	// Registerer takes the metrics. Required.
	Registerer prometheus.Registerer
}

const (
	// queueSize is how many spans wait at most: some seconds of a busy relay's.
	queueSize = 4096
	// exportTimeout bounds one batch, its retries included.
	exportTimeout = 10 * time.Second
	// instrumentation names the maker of the spans.
	instrumentation = "github.com/ringway/ringway"
	tracesPath      = "/v1/traces"
)

// Tracing is a running pipeline of spans.
type Tracing struct {
	client   *http.Client
	provider *sdk.TracerProvider
}

// CheckEndpoint reports what is wrong with a collector's URL.
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

// Start begins to send spans. A collector that is away is no error. Close ends it.
func Start(cfg Config) (*Tracing, error) {
	target, err := tracesURL(cfg.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("tracing: collector %q: %w: give a URL such as http://127.0.0.1:4318", cfg.Endpoint, err)
	}
	// A client of our own, whose connections end with us: the exporter's stay.
	client := &http.Client{Timeout: exportTimeout, Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSHandshakeTimeout: exportTimeout}}
	exporter, err := otlptracehttp.New(context.Background(), otlptracehttp.WithEndpointURL(target), otlptracehttp.WithHTTPClient(client))
	if err != nil {
		return nil, fmt.Errorf("tracing: collector %q: %w", cfg.Endpoint, err)
	}
	if cfg.Delay == 0 {
		cfg.Delay = time.Second
	}
	queue := sdk.NewBatchSpanProcessor(
		&reporter{SpanExporter: exporter, endpoint: target, logger: cfg.Logger, metrics: newMetrics(cfg.Registerer)},
		sdk.WithMaxQueueSize(queueSize), sdk.WithBatchTimeout(cfg.Delay), sdk.WithExportTimeout(exportTimeout),
	)
	return &Tracing{client, sdk.NewTracerProvider(
		sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(cfg.SampleRatio))),
		sdk.WithResource(resource.NewSchemaless(cfg.Resource...)),
		sdk.WithSpanProcessor(queue),
	)}, nil
}

// Tracer makes spans.
func (t *Tracing) Tracer() trace.Tracer { return t.provider.Tracer(instrumentation) }

// Close sends what waits, until ctx ends. Spans that end later are lost.
func (t *Tracing) Close(ctx context.Context) error {
	defer t.client.CloseIdleConnections()
	if err := t.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("send the last spans to the collector: %w", err)
	}
	return nil
}
