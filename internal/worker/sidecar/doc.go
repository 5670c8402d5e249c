// Package sidecar is the listener of a worker through which relays reach its
// services: mutual TLS outside, the service's own protocol inside.
//
// Promise: only relays of this cluster and environment come in, and they know
// from the handshake that this is the worker they meant. What a relay sends
// reaches the service as it came, and the answer the relay, over HTTP/1.1 and
// HTTP/2, with upgrades, trailers and streams both ways. When it does not, the
// relay learns whether anything had been sent to the service, so that it can
// repeat what is safe to repeat and nothing else.
//
//	relay ══ TLS 1.3, h2 or http/1.1 ══► listener ─► net/http ─► handler ─► pool ─► service
//	          Ringway-Service: name      relays only             by name            127.0.0.1
//	      ◄── Ringway-Load: others in flight ──────────────────────┘
//	      ◄── Ringway-Failed: unsent | sent | full ── when the service gave no answer
//
// A request is for the service that Ringway-Service names. No field of the name
// space Ringway-* passes, in neither direction: what the service says there is
// dropped, so it cannot speak for the sidecar.
//
// Before it answers that nothing was sent, the sidecar waits a moment for the
// rest of a small request body: the relay then has all of it, too, and can send
// it elsewhere.
//
// An endpoint with slots has at most that many requests and tunnels in flight. One more
// is answered with 429 and "Ringway-Failed: full" at once, and the service does not see
// it; the relay tries it elsewhere. A 429 of the service itself has no such header and
// passes.
//
// Rules:
//
//   - Run owns every goroutine and waits for it. SetServices and Close may be
//     called from any goroutine, before, during and after Run.
//   - Sidecar.mu guards the set of services against other writers. Requests read
//     it with one atomic load; they hold on to what they found, so a service
//     that is taken away, or moves, finishes what it has.
//   - Nothing of HTTP is read before a handshake succeeded (see identity.Listener).
//   - Admitted connections have no timeout for being idle: relays keep them warm
//     and close what they do not need.
package sidecar
