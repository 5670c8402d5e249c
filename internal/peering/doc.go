// Package peering turns plans into connections and avoids needless connection churn.
//
// # Promise
//
// Every change of the members gives a new plan, but not new connections. Connections
// that a plan needs are opened first. Connections that no plan needs any more are closed
// only after a delay that is longer than the relays need to agree, so that a worker keeps
// its relays until the slowest of them has followed. A connection stays open if its worker
// has just dropped out of the range, or if its member has just vanished and may come back.
// None of this is needed for correctness: with every setting off, exactly the connections
// of the plan are open.
//
// # Picture
//
//	members ──► Grace ──► plan ──► range, and what lies within slack of it
//	        vanished for less                      │ Want(service, …)
//	        than the grace period:                 ▼
//	        still in the plan               ┌─── Table ───┐   Step(now)
//	                                        │ one link    │ ─────────────► Open, Close
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
//     caller serialises the calls and passes the time in. Equal calls give equal
//     results, except for the order of the far ends to close.
//   - A far end that several services share has one link. The link drains only when
//     the last of these services does not need it any more.
//   - The caller carries out the actions of Step immediately and reports how an
//     attempt to open a connection ended. The table has already forgotten a link that
//     it lists to close; reports about that link are ignored.
//   - Time only moves forward. A time earlier than that of the last call is replaced
//     by the time of the last call.
package peering
