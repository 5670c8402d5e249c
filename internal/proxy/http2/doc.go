// Package http2 carries the streams of one HTTP/2 connection (RFC 9113), for both sides: a
// relay's listeners and a worker's sidecar are the server of their clients' connections, and
// a pool of connections is the client of an endpoint.
//
// Its promise: a header list reaches the caller checked or not at all, no more bytes of
// bodies are held than the windows allow, and what the other side can make this side do for
// nothing is bounded.
//
//	Run: read ──► frame ──► Conn.dispatch ──► Stream: head, body, trailers ──► Read, Answer
//	                                                                             (any goroutine)
//	Open, Send, Write ──► out ──► flush: one write for the frames of many streams
//
// A connection has one goroutine that reads, Run, and one that writes, while there is
// something to write. A server has one for each request, which serves the next one after it.
// The goroutine that writes lets the others run first, so that under load one write carries
// the frames of many streams.
//
// Rules:
//   - Conn.mu guards the streams and what waits to be sent. It is held for the time of
//     copying a frame at most.
//   - An idle connection over TCP holds no buffer, and a stream one only while it has bytes that
//     were not read.
//   - Streams that send share the connection frame by frame, in turn.
//   - A server stops reading and sends no more heads and trailers while its client does not read: no
//     window bounds them. A stream that may send nothing for Config.Progress is reset.
//   - A server's connection window is given back when a body is read: a client whose uploads
//     are not read waits. A client's, and that of a server whose other side is a relay or
//     another proxy (Config.Shared), is 16 MiB and given back when a frame arrives, because one
//     body that is not read must not hold up the others on the connection: the windows of the
//     streams bound what is held.
//   - The window of a stream doubles, up to Config.MaxWindow, when its transfer has used it
//     up twice: short bodies need little memory, and long ones get the bandwidth of a path
//     with a delay. Where the streams bound what is held, they grow by 8 MiB
//     together, and by 64 MiB on all connections.
//   - What is malformed resets the stream; what makes the rest of the connection
//     unintelligible ends the connection (RFC 9113 §5.4).
//   - A server that goes away stays until its client has the last answer: what a client sends to a
//     socket that was closed destroys what it has not received.
//   - A client asks a silent server with a PING only while it has a stream, and rarely: servers of gRPC
//     end a connection otherwise. The system probes the host.
//   - Frames that carry nothing and requests that are reset soon cost from a budget; see
//     control.go.
//   - A client opens one stream before the settings of the server, and never more than these
//     allow, or than were accepted when one was refused nevertheless.
//   - A Tunnel makes a connection of the stream of an extended CONNECT (RFC 8441), for both sides.
//   - Priorities are checked and ignored, a push is refused.
//   - Streams are pooled: nothing may use one after Close.
package http2
