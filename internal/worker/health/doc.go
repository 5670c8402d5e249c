// Package health finds out whether the service beside a worker works.
//
// # Promise
//
// A service is unhealthy until a probe of it succeeds, and healthy from that
// moment. After that Fall failures in a row make it unhealthy and Rise successes
// in a row healthy again. From the moment in which a service stops answering to
// the verdict at most
//
//	Interval × Fall + Timeout
//
// passes: 7 s by default. A service that is back is seen after Interval × Rise +
// Timeout at most.
//
//	Run ──► probe ──► verdict ──► Status, OnChange, log, metrics
//	 ▲        │       pure, no clock
//	 │        │ tcp   a connection opens
//	 │        │ http  GET path answers 2xx or 3xx
//	 │        │ grpc  grpc.health.v1.Health/Check answers SERVING
//	 └────────┘ start to start: Interval less 0–10 %; every 200 ms at the start
//
// # What a probe is
//
// Each probe opens a connection of its own and closes it, so that a server which
// still serves its old connections but accepts no new ones is noticed, as a
// relay would notice it. Nothing is retried within a probe. Redirects are not
// followed: they prove that the service answers, and where they lead is no
// business of this instance. An answer must arrive whole, or its first 64 KiB,
// within the timeout; of a longer one the rest is not read.
//
// A tcp check sees no further than the kernel, which accepts connections for a
// process that hangs; take http or grpc where the service can answer. All three
// speak clear text; a service that takes only TLS can be checked by tcp, or on a
// second, clear port.
//
// # Rules
//
//   - Checker.Run blocks; its caller owns that goroutine. Probes run in it, one
//     at a time, and no goroutine or connection outlives it. OnChange is called
//     from it and holds up the next probe while it runs.
//   - Checker.Status may be called from any goroutine. There is no lock: Run
//     publishes an immutable Status.
//   - A probe that is cut short by the end of Run counts for nothing.
//   - What comes from the network is bounded and hostile until decoded; it becomes
//     part of an error text, quoted and cut, and never a label.
//
// # Sources
//
// HTTP/2 frames: RFC 9113, through golang.org/x/net/http2. The gRPC call: "gRPC
// over HTTP2" (PROTOCOL-HTTP2.md) and "GRPC Health Checking Protocol".
package health
