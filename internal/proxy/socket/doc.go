// Package socket looks at the socket of a connection, waits for bytes on it without a buffer,
// and resets it.
//
// Its promise: Look never waits and consumes no byte; Read holds a buffer only while it
// copies bytes. Both work below TLS, where the bytes are those of TLS.
//
//	connection ── Below ──► socket ──► Look: quiet, arrived or gone
//	                            ├────► Read: waits, takes a buffer, reads once
//	                            └────► Reset: the other end gets an error
//
// Rules:
//   - On systems other than Linux and macOS Look finds nothing and Read is not possible: a
//     connection that was closed is noticed when it is used.
//   - One goroutine at a time calls Read. Look may be called from any goroutine.
package socket
