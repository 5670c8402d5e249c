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
// direction of a tunnel, and Carry waits for it; and for each connection that is
// being opened, and Drain waits for it. HTTP/2 connections (h2c) are
// net/http's ClientConns and have one reading goroutine each, which ends with
// the connection.
//
// Rules:
//   - The handler must not change r or w while Carry runs.
//   - After an error with Committed the handler must panic with
//     http.ErrAbortHandler; the client has seen a part of the answer.
//   - At most maxDials HTTP/1.1 connections are opened at a time. Requests that find
//     none idle wait in order, each until its deadline, and take the first that comes
//     free or is opened. What is opened for a request that was served or cancelled
//     meanwhile serves the next, or is kept idle. A dial that fails ends the wait of
//     one, or of all where they would find out the same (see waiting.go). Over HTTP/2
//     one connection is opened at a time, for all that wait, and all share its failure.
//   - Connections are used newest first. One goes back to the pool only when
//     its response was read to the exact end and nothing follows.
//   - Where the endpoint is a worker's sidecar, how far the exchange got is how
//     far it got with the service behind it, as the sidecar reports it.
//   - An exchange that moves no byte for Exchange.Progress is ended by the same timer
//     (see progress.go), and only the side that was silent is blamed. Before the head
//     the deadline counts instead, but for a client that does not send its body. While
//     that body moves, Exchange.AfterBody moves the deadline.
//   - Abandon ends the exchanges on an endpoint that is known to be dead, but for those
//     whose answer has begun, and the waits for a connection to it.
//   - Before every request the idle socket, and what TLS has read ahead of it, is
//     looked at: bytes behind an answer belong to no request, and the connection is
//     closed. After an answer that declares a body which must not come (HEAD, 304) it
//     rests for 20 ms. Elsewhere than on Linux and macOS sockets cannot be looked at.
//   - A repeatable request whose connection dies before any answer is sent once
//     more over a new connection, inside Carry.
//   - Cancelled requests are noticed within 20 ms by one timer per pool that
//     runs only while requests are in flight: cheaper than a context.AfterFunc
//     per request.
//   - Pool.mu guards the lists and counters and is held for a few
//     instructions; nothing else is locked while it is held, and of HTTP/2 its own
//     lock before it. Timers run on
//     goroutines of their own that only take the lock and return. The watch sets
//     deadlines of the client under it: no exchange it looks at can return to its
//     handler meanwhile.
package upstream
