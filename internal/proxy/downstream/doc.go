// Package downstream serves the connections of clients, HTTP/1.1 and HTTP/2, to one handler. A
// relay's ingress, its listener for other relays and a worker's sidecar use it.
//
// Its promise: a request reaches the handler as net/http would present it, or is refused.
// What RFC 9112 or net/http refuses is refused here too, with the exceptions of the package
// http1 for chunked bodies. Unlike net/http, it skips up to four empty lines in front of a request
// (RFC 9112 §2.2), serves a later version of HTTP/1 as HTTP/1.1 (RFC 9110 §2.5), and refuses a
// host that no name or address has. An idle HTTP/1.1 connection over TCP, and one whose
// request was read, holds no buffer for reading. After five seconds without a request it rests: a fresh
// goroutine waits, with half of the stack. A request costs one read and one write of the connection.
//
//	Accept ──► conn.serve ──► prologue, TLS ──► head ──► parse ──► Handler ──► finish ──┐
//	              │                              ▲                                      │
//	              │                              └────────────── next request ◄─────────┘
//	              ├── begins with the preface of HTTP/2, or selected it in TLS
//	              │       └──► http2.Conn ──► conn.serveStream, one goroutine for each request
//	              └── Hijack ──► the handler (a tunnel)
//
//	watch, every 20 ms: heads and idle connections that are too late, those that come to rest,
//	                    clients that went away
//
// A connection has one goroutine. It waits for bytes without a buffer, reads the head,
// parses it in one string, and calls the handler. The strings of the head that the same memory
// held before serve again where they have the same bytes, so a client that repeats its head
// costs no allocation. The head of an answer and a small body leave in one write. A request
// that is pipelined waits in the buffer for its turn.
//
// Rules:
//   - The http.Request, its header and the http.ResponseWriter serve for requests of other
//     clients afterwards. When ServeHTTP has returned, the handler must hold none of them, nor
//     the URL and the context of the request. Strings of the header may be kept.
//   - A handler that passes an answer on gives its fields to CopyField, as bytes, or over HTTP/2
//     to PassField and AddTrailer, as they were received. Those are not in the header of the
//     http.ResponseWriter.
//   - The context of a request ends when its client goes away, and after the answer if its
//     Done channel was asked for. It has only the values of Config.ConnContext.
//   - Config.Prologue runs before the TLS handshake. Both belong to the time for the first
//     head.
//   - A handler that takes over the stream of an extended CONNECT (RFC 8441) gets a request of
//     HTTP/1.1 for a WebSocket, and answers the client by Switched.
//   - A client that closes its sending side while its request is answered counts as gone,
//     as in net/http: most clients close both sides together, and the two cannot be
//     distinguished.
//   - A request with two framings is refused, and so are folded lines, lines without CR,
//     Transfer-Encoding in HTTP/1.0 and a user in the target.
//   - A connection without TLS that begins with a damaged preface of HTTP/2 (RFC 9113 §3.4) ends
//     without an answer, because its client cannot read one of HTTP/1.
//   - A connection from whose request not everything was read ends with the answer, and the
//     client gets half a second to read it.
//   - Answers are not guessed: no Content-Type is added. A Date is.
//   - Server.mu guards the list of connections. Phases of connections are atomic: the
//     watch, Shutdown and the connection's goroutine change them with compare and swap, and
//     the one that ends a phase owns what follows.
package downstream
