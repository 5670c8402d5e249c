// Package tracing sends the spans of requests to a collector, by OTLP over HTTP.
//
// Promise: tracing costs requests only the creation of their spans. Spans wait in a bounded
// queue. They are dropped and counted if the collector does not answer. Only a stop waits
// for the collector, for a short time.
//
//	ingress ── spans ──► sampler ──► queue ──► exporter ──► collector
//	                       │  keeps a share of the requests, or
//	                       │  what the caller decided
//	                       └─ drops the rest
//
// Package ingress decides which spans there are, by its interface Tracer. [Requests] makes them
// with OpenTelemetry's API, which other programs with the handler of ingress do not link.
//
// Rules: [Start] starts one goroutine, [Tracing.Close] ends it. No global of
// OpenTelemetry is set. The exporter reads the environment variable
// OTEL_EXPORTER_OTLP_HEADERS, for headers that a collector requires; all other settings
// come from Config.
package tracing
