// Package circuit refuses requests of a caller to an endpoint, or to a service, after
// that caller's requests have failed there too often.
//
// # Promise
//
// Eviction in package selection judges an endpoint by the requests of all callers. A
// circuit judges one caller's requests for one service at one endpoint, or, if the
// endpoint is left empty as relays do, for the whole service. A caller whose requests
// make endpoints fail is stopped, and other callers keep the endpoints. Circuits are off
// by default and then cost nothing: a nil *Breakers allows every request and does not
// allocate.
//
// # Picture
//
//	          more than 5 requests, and more than 50 %
//	          of them failed, within one period of 1 s
//	closed ──────────────────────────────────────────► open
//	  ▲                                               │  ▲
//	  │                                    one period │  │ a probe fails
//	  │                                               ▼  │
//	  └────── 5 probes in a row succeed ─────────── half-open
//	                                           one probe per period
//
// # Rules
//
//   - All methods may be called from any goroutine. There is no goroutine; a
//     circuit changes its state only when it is used, or when the answer of a probe has
//     lasted for a period.
//   - Every [Ticket] returned with a nil error is given back with Done exactly once,
//     including the zero Ticket. A probe that is never given back blocks its circuit
//     until the circuit is forgotten.
//   - A request counts in the period in which it ends, and not at all if the circuit has changed its
//     state since the request was allowed.
//   - Shed, cancelled and invalid requests are not failures: report them as
//     [selection.Cancelled].
//     Timeouts and resets are failures.
//   - When there are too many circuits, the least recently used is forgotten, so that
//     a client that invents caller names cannot exhaust the memory.
//   - Breakers.mu guards the table of circuits, circuit.mu the probes of one circuit
//     and its state in the gauges. Lock order: Breakers.mu, then gobreaker's own lock,
//     then circuit.mu; no lock is held during a call outside of the package.
//
// # Source
//
// The numbers are those of Hyperbahn's circuits. The state machine is
// github.com/sony/gobreaker. In a half-open circuit gobreaker allows five probes
// simultaneously; this package allows one per period.
package circuit
