// Package tcp accepts TCP connections of clients and opens a session for each: a connection
// to one endpoint of a service, which carries the same bytes.
//
// Promise: the bytes of a session arrive unchanged and in order, in both directions, and
// the end of one direction is passed on. A session that breaks ends with a reset, so that
// neither side takes it for the end of the data. Until the connection to an endpoint is
// open nothing that the client sent is lost, so another endpoint can be tried.
//
//	client ──► Server ── service? ──► request "Upgrade: ringway-tcp" ──► Handler
//	             │        fixed, or        without a byte on the wire       │
//	             │        by SNI                              picks, retries, counts
//	             └──── Hijack: the client's connection ◄────────────────────┘
//
// The handler is that of package ingress, so a session has the limits, the picks, the
// attempts and the forwarding of a request. Between relays, and to a worker's sidecar, the
// request is sent over HTTP/1.1, and the 101 turns the connection into the session.
//
// A Server without a service reads the TLS ClientHello of each client and takes the service
// from its server name, as package ingress does from the host of a request. The ClientHello
// then passes on to the endpoint with all that follows: the Server has no key and reads
// nothing else. A client that sends no ClientHello with a server name in time gets the
// alert unrecognized_name.
//
// Rules:
//
//   - Serve owns the goroutine of each connection and waits for all of them.
//   - Shutdown ends the intake and the connections without a session, and does not wait for
//     sessions: upstream.Sessions ends these, spread over time. Close cuts off everything.
//   - Before a session begins a Prologue may read, and for TLS at most maxHello bytes are read;
//     both together have HelloTimeout.
package tcp
