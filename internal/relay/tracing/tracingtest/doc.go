// Package tracingtest is a collector of spans for tests: it accepts OTLP over HTTP, like a
// real one, and keeps the spans.
//
//	relay ── OTLP, protobuf ──► Collector ──► Spans, Await
//
// Promise: its spans came over the network. A message that it cannot decode fails the test.
//
// Rules: for tests only. A Collector may be used by any number of goroutines.
package tracingtest
