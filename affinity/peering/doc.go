// Package peering turns plans into connections that hardly move.
//
// # Promise
//
// A plan is computed anew with every change of the members; connections are not.
// What a plan asks for is opened first. What no plan asks for any more is closed
// only after a delay longer than the relays need to agree, so that a worker never
// waits without its relays for the slowest of them. A connection that has just
// dropped out of a range, or whose member has just vanished and will be back,
// stays what it was. None of this is needed for correctness: with every setting
// at zero the plan alone is what is connected.
//
// # Picture
//
//	members ──► Grace ──► plan ──► range, and what lies within slack of it
//	        vanished for less                      │ Want(service, …)
//	        than the grace period:                 ▼
//	        still in the plan               ┌─── Table ───┐   Step(now)
//	                                        │ one Link    │ ─────────────► Open, Close
//	              Opened, Failed, Lost ───► │ per far end │
//	                                        └─────────────┘
//
//	            Step: room to open            Opened
//	 waiting ───────────────────► opening ─────────────► open
//	    ▲                            │                    │  ▲
//	    └─────── after a delay ──────┴─── Failed, Lost ───┤  │ wanted again
//	                                                      ▼  │
//	                          Close ◄── drain delay ── draining
//
// # Rules
//
//   - [Table] and [Grace] are pure: no goroutine, no clock, no lock, no socket. The
//     caller serialises and passes the time in. Equal calls give equal answers; the
//     order within a list of far ends to close means nothing.
//   - A far end that several services share has one Link. It drains only when the
//     last of them has let go.
//   - The caller does what Step says, at once, and reports how an opening ended. A
//     Link that was told to close is forgotten by then; reports about it are
//     ignored.
//   - Time only moves forward. A call with an earlier time than the last is one at
//     the last.
package peering
