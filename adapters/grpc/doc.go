// Package ringwaygrpc lets clients of grpc-go call the services that a Ringway cluster knows,
// without a relay in between. It is a module of its own, so that grpc-go is no dependency of
// programs without it.
//
// # Promise
//
// [NewClient] returns a grpc.ClientConn that sends each RPC to the endpoint that
// [router.Router.Pick] chooses: by the strategy, weights and slots of the service, and by what
// earlier RPCs showed. An endpoint without a connection gets no RPC while another one has a
// connection. Each RPC, and each RPC that found an endpoint whose dial failed, is reported, so
// that endpoints that fail are evicted. A draining worker gets no new RPC, and its running
// streams go on. A pick allocates nothing.
//
// # Picture
//
//	router.Endpoints ─► resolver ─► balancer ─► a SubConn for each endpoint
//	                                   │               │ READY, failed, …
//	                                   ▼               ▼
//	RPC ─► picker ─► router.Pick ─► endpoint ─► its SubConn ─► worker
//	                      ▲            └─ not READY: the next one
//	                      └─── Answered, Done: the status of the RPC ◄──┘
//
// # Rules
//
//   - The program runs the router, and closes the ClientConn before it ends the router. Its node
//     is best an observer, with PickOnly if the program has no other use for the router. Any
//     number of ClientConns share a router, and a process may have several routers: grpc-go's
//     global registry holds the name of the balancing policy and nothing else.
//   - RPCs wait until the router is ready, like for every name that is not resolved yet. If it has
//     not become ready in 30 s, they fail with UNAVAILABLE and what it waits for, until it is
//     ready. Then an RPC that finds no endpoint, or only endpoints whose dial failed, fails with
//     UNAVAILABLE. With grpc.WaitForReady it waits in all these cases. It always waits while a
//     connection is being opened. If all slots of the endpoints with a connection are in use, it
//     fails with RESOURCE_EXHAUSTED.
//   - RPCs in flight to a host that has vanished fail after 10 s: the system probes connections, or
//     notices what is not acknowledged. Both are options that the program may replace. An endpoint
//     that refuses connections is dialled again at least every 6 s.
//   - UNAVAILABLE, UNKNOWN, INTERNAL, DATA_LOSS and DEADLINE_EXCEEDED count as
//     failures of the endpoint; RESOURCE_EXHAUSTED as a sign of
//     load; CANCELLED, UNIMPLEMENTED and a stream that had begun when its deadline came, as neither. All
//     others count as answers.
//   - The latency of an endpoint is the time of a unary RPC, or of a stream until the program
//     has received its first message.
//   - Strategies by key take the key of [WithKey], else the metadata ringway-key.
//   - The goroutine that follows the endpoints belongs to the resolver, which ends it in Close.
//     The callbacks of grpc-go, one at a time, are the only writer of the connections.
//
// [router.Router.Pick]: https://pkg.go.dev/github.com/ringway/ringway/selection/router#Router.Pick
package ringwaygrpc
