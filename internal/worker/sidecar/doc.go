// Package sidecar is the listener of a worker through which relays reach its
// services: mutual TLS outside, the service's own protocol inside.
//
// Promise: only relays and observers of this cluster and environment are accepted, and the handshake
// proves to them that this is the intended worker. A request reaches the service unchanged,
// and the answer reaches the relay unchanged, over HTTP/1.1 and HTTP/2, with upgrades,
// trailers and streams in both directions. If the service gives no answer, the relay learns
// whether anything was sent to the service, so that it retries only requests that are safe
// to retry.
//
//	relay ══ TLS 1.3, h2 or http/1.1 ══► listener ─► server ─► handler ─► pool ─► service
//	          Ringway-Service: name      relays only             by name            127.0.0.1
//	      ◄── Ringway-Load: others in flight ──────────────────────┘
//	      ◄── Ringway-Failed: unsent | sent | full ── when the service gave no answer
//
// A TCP session is a request with the upgrade ringway-tcp. It reaches only a service that the
// worker offers as TCP, and such a service gets no other request.
//
// A service with h2 is reached over TLS, and its certificate is always checked (see
// upstream.ServiceTLS).
//
// A WebSocket to a service over HTTP/2 is a stream there. If a service with h2c accepts none, it is
// tried over HTTP/1.1.
//
// A request is for the service that Ringway-Service names. Header fields Ringway-* do not
// pass in either direction: those of the service are dropped, so the service cannot
// impersonate the sidecar.
//
// Before the sidecar answers that nothing was sent, it waits a moment for the rest of a
// small request body: the relay then has the whole body, too, and can send it to another
// worker.
//
// An endpoint with slots has at most that many requests and tunnels in flight. The next
// request is answered immediately with 429 and "Ringway-Failed: full" and does not reach
// the service; the relay retries it elsewhere. A 429 of the service itself has no such
// header and passes.
//
// A stop ends the intake and waits for requests in flight, as in a relay (see
// upstream.Drain): requests have one time limit, tunnels and answers that have begun a
// longer one, and between the two limits these end one after the other. Relays get a close
// frame of a WebSocket, and an answer to a request that has none.
//
// Rules:
//
//   - Run owns every goroutine and waits for it. SetServices and Close may be called from
//     any goroutine, before, during and after Run.
//   - Sidecar.mu guards the set of services against concurrent writers. Requests read the
//     set with one atomic load and keep the service that they found, so a service that is
//     removed, or moves, finishes its requests in flight.
//   - Nothing of HTTP is read before the handshake has succeeded (see handshake.Listener).
//   - Accepted connections have no idle timeout: relays keep them open and close those that
//     they do not need.
package sidecar
