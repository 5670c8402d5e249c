// Package ingress answers requests: it finds the service of a request, picks an
// endpoint, has the request carried to it and the answer back, and tries another
// endpoint if that is safe.
//
// Promise: a request is carried at most once to an endpoint that may have acted on it,
// unless repeating it is safe. Every answer of this relay itself is JSON with a code that
// names who has to act. A call of gRPC gets a status of gRPC instead, in trailers if its
// answer breaks off. Overload is refused immediately and never queued. Overload means
// that more requests of a service are in flight than this relay carries, or that more wait
// for their answers than its endpoints complete in time, which package overload decides.
//
//	client ──► Handler ── service? ── room? ── pick ──► begin ──► worker      (affine)
//	                                            ▲         └─────► other relay (forwarding)
//	                                            └── failed, nothing sent: another one
//
// What an endpoint over HTTP/2 has refused without processing goes to another one. If there is
// no other, the same gets it once more, over another connection.
//
// An attempt that another could follow has a limit, so that an endpoint that hangs does
// not use up all the time of a request. A client's own deadline shortens all limits and is
// passed on with the time that is left. An endpoint is not blamed if it had less time
// than this relay normally gives. No time passes while the client's body moves.
//
// With circuits, a caller whose requests to a service fail too often is refused that
// service for some time; other callers are not. A caller is the name in the certificate of a
// client, which the service gets as well, or else the client's address; only a trusted proxy
// may name another one.
//
// The fields with which a client describes its origin are replaced or dropped. Those of
// trusted proxies are kept, and between relays the first relay has decided. The first
// relay also decides whether an answer shows the client where its request went.
//
// The attempts end with the head of an answer. What follows has two ends: ServeHTTP delivers the body
// to its client, and a program that has called Begin reads it, in its own goroutine.
//
// An answer to a call of gRPC counts by the status of the call, in its head or its trailers, because
// its HTTP status is 200 even if the worker fails every call.
//
// A failed attempt keeps the upstream.Fault that it ended with, from which follow the blame, the
// next attempt and the answer. One observer of the request passes the begin of each attempt, the
// head of the answer, and both ends to the counters, the spans, the record, the limit on waiting
// requests and the circuit.
//
// If requests are traced, each request is a span below its caller's, and each attempt is a
// span below that. The context of the attempt's span is sent in the headers. Without
// a Tracer these headers are not read and cost nothing. The text about candidates is built
// only for requests that are sampled.
//
// If the request log or a reader of it wants a record of a request, every way in which the
// request can end completes it: an answer, a refusal, a client that leaves, a panic. Without
// a log this costs one atomic load. For sampled requests Explanations remember, in a bounded
// ring, how their endpoints were chosen.
//
// If a service has a session cookie, a request goes to the endpoint that its cookie names
// while that endpoint can be used; the strategy picks for all other requests. The relay
// that picks the worker reads the cookie, and sets one if the client's is not accepted.
//
// Clients count the requests in flight by the address of the client, to all services together: each
// has a share of what is free. Trusted proxies and relays have none, because they stand for many.
//
// A TCP session is a request with the upgrade wire.UpgradeTCP. Package tcp makes it of a
// client's connection and marks it in the context; relays send it to each other. The answer
// begins when the connection to an endpoint is open. A service takes either requests or
// sessions.
//
// The peer listener runs the same handler with FromRelay set: a request that another relay
// forwarded is carried to a worker or refused, never forwarded again.
//
// Rules: Handler is safe for concurrent use and keeps no state of a request. It reads the
// clock when a request begins and when its answer begins, and not again if the answer fits
// one read; a session cookie costs one or two more clock reads, a record one when the
// request ends and one when a request is forwarded. Package routing picks, package
// upstream carries.
package ingress
