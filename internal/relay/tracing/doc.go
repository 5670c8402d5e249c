// Package tracing sends the spans of requests to a collector, by OTLP over HTTP.
//
// Promise: tracing costs requests nothing but the making of their spans. Spans wait in
// a bounded queue and are dropped, counted, when the collector is away; nothing ever
// waits for it but a stop, and that not long.
//
//	ingress ── spans ──► sampler ──► queue ──► exporter ──► collector
//	                       │            one request in so many, or what the
//	                       └─ not asked about the rest   caller has decided
//
// Which spans there are and what is in them is decided by package ingress, which knows
// only OpenTelemetry's API.
//
// Rules: [Start] starts one goroutine, [Tracing.Close] ends it. No global of
// OpenTelemetry is set. The exporter reads the environment variable
// OTEL_EXPORTER_OTLP_HEADERS, for what a collector asks for besides; everything else
// comes from Config.
package tracing
