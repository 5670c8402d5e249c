// Package health checks whether the service next to a worker works.
//
// # Promise
//
// A service is unhealthy until its first successful probe. After that Fall failures in a
// row make it unhealthy and Rise successes in a row make it healthy again. When a service
// stops answering, the verdict follows within
//
//	Interval × Fall + Timeout
//
// which is 7 s by default. A probe for which this process lacks descriptors, ports or memory changes
// nothing after the first success. A recovered service is detected after at most Interval × Rise +
// Timeout.
//
//	Run ──► probe ──► verdict ──► Status, OnChange, log, metrics
//	 ▲        │       pure, no clock
//	 │        │ tcp   a connection opens
//	 │        │ http  GET path answers 2xx or 3xx
//	 │        │ grpc  grpc.health.v1.Health/Check answers SERVING
//	 │        │       a service with h2 is asked in all three ways over TLS
//	 └────────┘ start to start: Interval less 0–10 %; every 200 ms at the start
//
// # Probes
//
// Each probe opens a separate connection and closes it, so that it detects a server which
// still serves its old connections but accepts no new ones, as a relay would. Nothing is
// retried within a probe. Redirects are not followed: they prove that the service answers,
// and their target may be another instance. An answer must arrive completely, or its first
// 64 KiB, within the timeout; the rest of a longer answer is not read.
//
// A tcp check tests only the kernel, which accepts connections for a process that hangs;
// use http or grpc if the service supports them. All three use clear text, except for a
// service with h2: its probes begin with the TLS of relays, over HTTP/2, and fail where relays
// would fail. A check with an address of its own, such as a second port, uses clear text.
//
// # Rules
//
//   - Checker.Run blocks; its caller owns that goroutine. Probes run in it, one at a time,
//     and no goroutine or connection outlives it. OnChange is called from it and delays the
//     next probe while it runs.
//   - Checker.Status may be called from any goroutine. There is no lock: Run
//     publishes an immutable Status.
//   - A probe that is cut short by the end of Run is not counted.
//   - Data from the network is limited in size and not trusted until decoded; it can become
//     a part of an error text, quoted and truncated, and never a label.
//
// # Sources
//
// HTTP/2 frames: RFC 9113, with golang.org/x/net/http2. The gRPC call: "gRPC over HTTP2"
// (PROTOCOL-HTTP2.md) and "GRPC Health Checking Protocol".
package health
