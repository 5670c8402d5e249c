// Package circuit stops a caller from sending more requests to an endpoint that
// fails for it.
//
// # Promise
//
// Eviction in package selection looks at an endpoint as a whole. A circuit looks at
// one caller's requests for one service at one endpoint, or for a service as a whole
// where the endpoint is left empty, as a relay does: a caller whose every request
// makes endpoints fail is stopped without costing anybody else the endpoints. Off, which is the default, it costs nothing: a nil *Breakers allows
// everything and does not allocate.
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
//   - All methods may be called from any goroutine. There is no goroutine and no
//     timer; time passes when somebody asks.
//   - Every [Ticket] of a nil error is given back with Done exactly once, the zero
//     Ticket too. A probe that is never given back blocks its circuit until it is
//     forgotten.
//   - Shed and cancelled requests, and bad ones, are no failures: say so with
//     [Ignored]. Timeouts and resets are.
//   - Circuits are forgotten, least recently used first, when there are too many:
//     who invents caller names costs memory that is bounded.
//   - Breakers.mu guards the table of circuits, circuit.mu one circuit's probes and
//     what the gauges were told. Order: Breakers.mu, then gobreaker's own lock, then
//     circuit.mu; none is held while anything outside is called.
//
// # Source
//
// The numbers are those of Hyperbahn's circuits; the state machine is
// github.com/sony/gobreaker, to which this package adds that there is one probe in
// a period where gobreaker lets five go at once.
package circuit
