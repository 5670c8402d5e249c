// Command dataplane measures what a proxied request costs the relay, next to HAProxy and
// nginx on the same machine at the same time.
//
//	wrk, h2load ──┬── HAProxy, nginx ──────────────┬── 6 backends, 127.0.0.11-16
//	              ├── HAProxy, relay, by TLS ──────┤
//	              ├── relay ───────────────────────┤
//	              ├── gate ──► relay ──────────────┤
//	              └── relay ──► sidecars (TLS) ────┘
//
// The result is CPU time per request: user and system time of the proxy's processes
// divided by the number of requests served. On a shared machine CPU time is far
// steadier than throughput or latency, which measure load, proxy and backends
// together. Rounds alternate between the proxies, and the reported ratio is
// the median of the ratios of the rounds.
//
// Rules: all traffic stays on loopback; the program ends every process that it
// starts; the program needs haproxy, nginx, wrk, h2load and Linux's /proc, and reports an
// error if one is missing. A failed request spoils the measurement.
package main
