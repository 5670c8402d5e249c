// Package pool keeps connections to a few peers out of many, where there is no
// affinity range to say which: a gate or a client choosing relays, a relay
// forwarding to the relays of a service.
//
// # Promise
//
// Three primaries take turns; two backups stand by, connected. When a primary
// goes, a backup stands in its place before the call returns, and a newcomer is
// connected 100 to 500 ms later. Connections stay where they are until there is a
// reason, and every reason is an event, a log line and a counter. A connection
// that has grown old is replaced by one that is open already. No request is lost
// to any of this: a connection that is given up ends with its last request.
//
//	peers ─► nearest tiers with enough peers ─► weighted rendezvous ─► two drawn,
//	         same_dc ∪ same_region ∪ global     the best K of them      the faster
//	                                            for this selector         │
//	                                                                      ▼
//	  requests ─► round robin ─► primaries A B C ◄─ promoted ─ backups D E
//	    with a key: the          │     │
//	    primary it had before    │     └ broke, failing, slow, gone, too old:
//	                             ▼       evicted, for a while no candidate
//	             connections 1…5 per peer, opened on demand, at most 100
//
//	 a connection:  opening ──► open ──► draining ──► closed
//	                   │         ▲ │ nobody asks for more    ▲
//	                   └ failed  └─┘ requests come and go    └ last request ended
//
// # Rules
//
//   - [Table] is the pure core: no goroutine, no clock, no lock, no socket. The
//     caller serialises, passes the time in and does what Step says. Equal calls
//     and random numbers give equal answers. Time only moves forward.
//   - [Pool] runs a Table with real connections. All its methods may be called
//     from any goroutine. Run owns every goroutine and waits for them; Pool.mu
//     guards the table and is never held while a connection is opened or closed,
//     a line is logged, or the observer is called.
//   - Observer.OnEvent is called by Run only, one event after the other, in the
//     order in which things happened.
//   - Every [Lease] is released exactly once. Whoever knows how the request ended
//     reports it before that; a lease without a report says nothing of its peer.
//   - The last connected peer is never evicted for its health, nor anyone while
//     the others fail alike: the fault is then elsewhere.
//
// # Sources
//
// Pool, tiers and thresholds: Hyperscale AD-28. Weighted rendezvous: Schindelhauer
// and Schomaker (2005). Two choices: Mitzenmacher (2001). Failure shares: Wilson
// (1927). Where this package departs from AD-28: docs/decisions/0016.
package pool
