// Command dataplane measures the CPU time of one proxied request, next to HAProxy
// on the same machine at the same time.
//
//	wrk (32 connections) ──┬── HAProxy ──────────────┬── 6 backends, 127.0.0.11-16
//	                       └── relay or lean ingress ┘
//
// The result is CPU time per request: user and system time of the proxy's process
// divided by the number of requests served. On a shared machine CPU time is far
// steadier than throughput or latency, which measure wrk, proxy and backends
// together. Rounds alternate between the two proxies, and the reported ratio is
// the median of the ratios of the rounds.
//
// Rules: all traffic stays on loopback; the program ends every process that it
// starts; the program needs haproxy, wrk and Linux's /proc, and reports an error if
// one is missing.
package main
