// Command dataplane measures what a proxied request and a byte of a TCP session cost the
// relay, next to HAProxy and nginx on the same machine at the same time.
//
//	wrk, h2load ──┬── HAProxy, nginx ──────────────┬── 6 backends, 127.0.0.11-16
//	              ├── HAProxy, relay, by TLS ──────┤
//	              ├── relay ───────────────────────┤
//	              ├── gate ──► relay ──────────────┤
//	              ├── relay ──► sidecars (TLS) ────┤
//	              └── relays with a log or a tap ──┤
//	32 sessions ───── HAProxy, relay ──────────────┘
//
// The result is CPU time per request: user and system time of the proxy's processes
// divided by the number of requests served. On a shared machine CPU time is far
// steadier than throughput or latency, which measure load, proxy and backends
// together. Rounds alternate between the proxies, and the reported ratio is
// the median of the ratios of the rounds.
//
// Three kinds of traffic have more to compare:
//
//   - TCP: CPU per MiB of both directions together. HAProxy is measured as it is by default,
//     and with splicing in both directions, because splice-auto did not change its CPU here.
//   - Request log: relays with and without a log of 1 % of the requests. A second relay
//     without one shows how much two equal processes differ.
//   - Tap: three relays at a fixed rate, without and with `relay tap --all`. The CPU is that of
//     the relays, not of the command. A second measurement without it shows the noise, and the
//     last line has the records that were read and dropped.
//
// With -grpc the program measures calls of gRPC only: sizes of the answer, trailers announced
// or not, few and many connections.
//
// With -base the program measures the relay of an older release and this one, each with workers of
// its own release, and fails where a request costs a tenth more CPU.
//
// With -page the program measures nothing: it writes the figures of runs with -json into a page, with
// graphs.
//
// With -foreign the program measures nothing. It counts, for the same proxies and for each way
// of a request through relays, the clients that read an answer to another one, when services
// send bytes behind their answers (foreign.go).
//
// Rules: the program is started in the root of its module, sims/bench, and builds the binaries of
// the repository; all traffic stays on loopback; the program ends every process that it
// starts; the program needs haproxy, nginx, wrk, h2load and Linux's /proc, and reports an
// error if one is missing. A failed request spoils the measurement.
package main
