// Command dataplane measures what one proxied request costs, next to HAProxy
// on the same machine in the same minutes.
//
//	wrk (32 connections) ──┬── HAProxy ──────────────┬── 6 backends, 127.0.0.11-16
//	                       └── relay or lean ingress ┘
//
// The figure is CPU per request: user and system time of the proxy's process
// divided by the requests it served. It is far steadier on a shared machine
// than throughput or latency, which measure wrk, proxy and backends together.
// Rounds alternate between the two proxies, and the ratio reported is the
// median of the ratios of the rounds.
//
// Rules: everything stays on loopback; the program ends every process that it
// started; it needs haproxy, wrk and Linux's /proc, and says so when they are
// missing.
package main
