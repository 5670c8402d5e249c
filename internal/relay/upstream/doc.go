// Package upstream carries one request's bytes to one endpoint and the answer
// back. Which endpoint was decided before; the ingress is net/http's server.
//
// Its promise: what the endpoint answers reaches the client as it comes, or
// the error says exactly how far the exchange got, so that the caller can
// decide on a retry without guessing. Whatever net/http refuses in a response
// is refused here too.
//
//	client ── net/http server ── handler ── Pool.Carry ── warm connection ── endpoint
//	                                │            │
//	                 picks the endpoint      one write: head and small body
//	                 and fills Exchange      one read: head and small body
//
// A Pool belongs to one endpoint. HTTP/1.1 connections have no goroutine of
// their own: Carry writes and reads on the handler's goroutine, with buffers
// that are pooled, so idle connections hold none. A goroutine is started for
// a request body that is large or of unknown length and for the second
// direction of a tunnel; Carry waits for it. HTTP/2 connections (h2c) are
// net/http's ClientConns and have one reading goroutine each, which ends with
// the connection.
//
// Rules:
//   - The handler must not change r or w while Carry runs.
//   - After an error with Committed the handler must panic with
//     http.ErrAbortHandler; the client has seen a part of the answer.
//   - Connections are used newest first. One goes back to the pool only when
//     its response was read to the exact end and nothing follows.
//   - Where the endpoint is a worker's sidecar, how far the exchange got is how
//     far it got with the service behind it, as the sidecar reports it.
//   - Before a request that may not be repeated, the idle socket is looked at.
//     A repeatable one whose connection dies before any answer is sent once
//     more over a new connection, inside Carry.
//   - Cancelled requests are noticed within 20 ms by one timer per pool that
//     runs only while requests are in flight: cheaper than a context.AfterFunc
//     per request.
//   - Pool.mu guards the lists and counters and is held for a few
//     instructions; nothing else is locked while it is held. Timers run on
//     goroutines of their own that only take the lock and return.
package upstream
