package relay

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/relay/tracing"
	"github.com/ringway/ringway/internal/settings"
)

// lastSpans is how long a stop waits for the collector.
const lastSpans = 3 * time.Second

// startTracing returns the tracer, nil if requests are not traced.
func (r *Relay) startTracing() (ingress.Tracer, error) {
	cfg := r.cfg.Tracing
	if cfg.Endpoint == "" {
		return nil, nil
	}
	m := r.cfg.Membership
	cfg.Logger, cfg.Registerer = r.cfg.Logger, r.cfg.Registry
	cfg.Resource = []attribute.KeyValue{
		attribute.String("service.name", "ringway-"+string(m.Role)), attribute.String("service.namespace", m.Cluster),
		attribute.String("service.instance.id", m.ID), attribute.String("service.version", process.Version()),
		attribute.String("deployment.environment.name", m.Environment),
	}
	if m.Datacenter != "" {
		cfg.Resource = append(cfg.Resource, attribute.String("cloud.availability_zone", m.Datacenter))
	}
	var err error
	if r.tracing, err = tracing.Start(cfg); err != nil {
		return nil, err
	}
	return tracing.Requests(r.tracing.Tracer()), nil
}

// endTracing sends the last spans. A collector that does not answer causes no error.
func (r *Relay) endTracing() error {
	if r.tracing == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), lastSpans)
	defer cancel()
	if err := r.tracing.Close(ctx); err != nil {
		r.cfg.Logger.Warn("the last spans were not sent", "err", err)
	}
	return nil
}

// collectorURL is the rule of a setting.
var collectorURL = settings.Rule[string]{
	Allowed: "a URL, http:// or https://, without a user",
	Holds:   func(endpoint string) bool { return tracing.CheckEndpoint(endpoint) == nil },
}
