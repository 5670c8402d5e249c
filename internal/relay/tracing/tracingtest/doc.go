// Package tracingtest is a collector of spans for tests: it speaks OTLP over HTTP, as a
// real one does, and keeps what it gets.
//
//	relay ── OTLP, protobuf ──► Collector ──► Spans, Await
//
// Promise: what it shows came over the wire. A message that it cannot decode fails the
// test.
//
// Rules: for tests only. A Collector may be used by any number of goroutines.
package tracingtest
