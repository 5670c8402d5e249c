// Package socket checks the socket of a connection, reads without a buffer for the wait,
// writes, acknowledges what has arrived, counts what has not, and resets it.
//
// Its promise: Look never waits and consumes no byte; Read and Ask hold a buffer only while
// they copy bytes; Ask sends nothing on a connection that has ended or has unread bytes. Look
// works below TLS as well, where the bytes are those of TLS.
//
//	connection ── Below ──► socket ──► Look: quiet, arrived or gone
//	                            ├────► Read: waits, takes a buffer, reads once
//	                            ├────► Write: as that of the connection, for less
//	                            ├────► Ask: looks, writes, and reads
//	                            ├────► Acknowledge: the other end holds nothing back
//	                            ├────► Unsent: what the other end has not acknowledged
//	                            ├────► Reset: the other end gets an error
//	                            └────► Direct, Listen: a connection for TLS above, by Read and Write
//
// Rules:
//   - On systems other than Linux and macOS no connection is Usable, and Look finds nothing: a
//     connection that was closed is noticed when it is used.
//   - Acknowledge and Unsent need Linux.
//   - One goroutine at a time calls Read or Ask, one calls Write or Ask. Look may be called
//     from any goroutine.
//   - On Linux the calls are raw ones of the system, because they never wait; see
//     calls_linux.go. Those are the only ones of the data path that need unsafe.
package socket
