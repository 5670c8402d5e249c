// Package upstream carries one request to one endpoint and the answer back. The
// caller has picked the endpoint; package downstream serves the client.
//
// Its promise: the endpoint's answer reaches the client as it arrives, or the
// error reports exactly how far the exchange got, so that the caller can decide on
// a retry without guessing. What net/http refuses in a response is refused here too.
//
//	client ── downstream.Server ── handler ── Pool.Carry ── warm connection ── endpoint
//	                                  │            │
//	                   picks the endpoint      one write: head and small body
//	                   and fills Options       one read: head and small body
//
// Over HTTP/1.1 on both sides the fields of an answer are copied from the read buffer into the
// head that the client gets, without strings and a header map in between. Over HTTP/2 on both
// sides they pass as package http2 has them, without the map.
//
// An exchange is Begin, which returns at the head of the answer, and then Deliver for a client, or
// Read and End for a program that takes the body itself. Carry is Begin and Deliver.
//
// A Pool belongs to one endpoint. HTTP/1.1 connections have no goroutine: an exchange
// writes and reads on its caller's, with pooled buffers, which idle
// connections and exchanges that wait for bytes return. Two things have a separate goroutine that its end waits
// for: a request body that is large or of unknown length, and the second direction
// of a tunnel. Each connection that is being opened has one that Drain waits for.
// HTTP/2 connections (h2c, and h2 over TLS) are those of package http2 and have one reading
// goroutine each, which ends with the connection. The certificate of a service with h2 is
// always checked, and a dial fails if it is not the expected one.
//
// A WebSocket to an endpoint over HTTP/2 is the stream of an extended CONNECT (RFC 8441), and
// from then on a tunnel as one over HTTP/1.1. It waits until the endpoint's settings state whether
// they allow it; no other upgrade is carried there.
//
// Over TCP every connection is a session of the endpoint's service, so a Pool keeps none:
// Begin dials, and Deliver connects the two ends. A request asks for a session by the upgrade
// wire.UpgradeTCP, which is the same between relays and to sidecars. A session that breaks,
// or is ended here, ends with a reset at both ends.
//
// Rules:
//   - The handler must not change r or w before the exchange has ended.
//   - After an error with Committed the handler must panic with http.ErrAbortHandler, because
//     the client has received a part of the answer, or end a call of gRPC with trailers.
//   - At most maxDials HTTP/1.1 connections are opened at a time. Requests that find
//     none idle wait in order, each until its deadline, and take the first that becomes
//     free or is opened. A connection whose request was served or cancelled meanwhile
//     serves the next request or is kept idle. A failed dial ends the wait of one
//     request, or of all if they would fail in the same way (see waiting.go).
//   - Over HTTP/2 one connection is opened at a time for all waiting requests, and all get
//     its error, unless another connection is open, for whose streams they wait. A new
//     connection gets one request until the endpoint's limit of streams is known. Requests
//     that find no stream wait in order, each until its deadline, and take the first that
//     becomes free on any connection. A request that the endpoint reports as not processed is an
//     error with Unprocessed.
//   - A body that the client does not send, and an answer over HTTP/2 that the endpoint does not,
//     hold no buffer. Over TLS an answer over HTTP/1.1 holds one when it has begun.
//   - A tunnel holds no buffer while it waits for the bytes of a socket without TLS.
//   - Connections are used newest first. A connection returns to the pool only when
//     its response was read to the exact end and no byte follows.
//   - If the endpoint is a worker's sidecar, the error reports how far the exchange got
//     with the service behind the sidecar, as the sidecar reports it.
//   - The watch of the pool ends an exchange that moves no byte for Options.Progress
//     (see progress.go), and only the silent side is blamed. Before the head only the
//     deadline applies, except when the client does not send its body, or keeps a stream open
//     whose end the endpoint need not await. While the body moves, Options.AfterBody moves
//     the deadline.
//   - Abandon is for an endpoint that is known to be dead. It ends the waits for a
//     connection and the exchanges whose answer has not begun.
//   - Sessions lists the tunnels and the begun answers of many pools. Sessions.Drain
//     stops a process, a relay or the sidecar of a worker: it waits for requests and
//     sessions, each for its own time, and ends the rest.
//   - Before every request the idle socket, and the bytes that TLS has read ahead, are
//     checked: bytes after an answer belong to no request, and the connection is closed.
//     Sockets can be checked on Linux and macOS only.
//   - After an answer that never has a body (HEAD, 204, 304) the connection is acknowledged
//     and rests, so that a body that comes anyway is found: 100 ms until 64 such rests were
//     clean, then 20 ms, and no more than 32 at a time. After unasked bytes all answers of the
//     endpoint have the long rest, for five minutes (see unasked.go). A sidecar sends none.
//   - A repeatable request whose connection ends before any byte of an answer is sent
//     once more over a new connection, inside Begin, unless Options.Once is set.
//   - One timer per pool detects cancelled requests, late heads and waits that are over
//     within 20 ms. It costs less than a timer for each request. Without requests it runs
//     only to check the connections of HTTP/2, once a second.
//   - Pool.mu guards the lists and counters and is held for a few instructions. No other
//     lock is taken while it is held; the HTTP/2 lock is taken before it. Timers run on
//     their own goroutines, which only take the lock and return. The watch sets
//     deadlines of the client under the lock: no exchange that it checks can end meanwhile.
package upstream
