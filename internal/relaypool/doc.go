// Package relaypool keeps connections to a few of many peers where no affinity range
// determines which: a gate or a client that chooses relays, a relay that forwards to the
// relays of a service.
//
// # Promise
//
// Three primaries, or as many as Resize sets, take requests in turn; two backups stand by,
// connected. When a primary is lost, a backup is promoted before the call returns, and another
// peer is connected 100 to 500 ms later. Connections change only for a reason, and every change
// is an event, a log line and a counter. An old connection is closed only when its replacement
// is open. None of this interrupts a request: a connection drains, and closes after its last
// request.
//
// # Picture
//
//	peers ─► nearest tiers with enough peers ─► weighted rendezvous ─► two drawn,
//	         same_dc ∪ same_region ∪ global     the best K of them      the faster
//	                                            for this selector         │
//	                                                                      ▼
//	  requests ─► round robin ─► primaries A B C ◄─ promoted ─ backups D E
//	    with a key: the          │     │
//	    primary it had before    │     └ broken, failing, slow, removed, too old:
//	                             ▼       evicted
//	             connections 1…5 per peer, opened on demand, at most 100
//
//	 The client grows so; a relay has one connection per peer here, and package upstream
//	 opens as many as the streams need.
//
//	 a connection:  opening ──► open ──► draining ──► closed
//	                   │         ▲ │ not needed any more     ▲
//	                   └ failed  └─┘ requests come and go    └ last request ended
//
// # Rules
//
//   - table is the pure core: no goroutine, no clock, no lock, no socket. The
//     caller serialises the calls, passes the time in and carries out the actions of
//     Step. Equal calls and random numbers give equal results. Time only moves forward.
//   - [Pool] runs a table with real connections. All its methods may be called
//     from any goroutine. Run owns every goroutine and waits for them; Pool.mu
//     guards the table and is never held while a connection is opened or closed,
//     a line is logged, or the observer is called.
//   - Observer.OnEvent is called only by Run, one event at a time, in the order of
//     the events.
//   - Every [Lease] is released exactly once. The caller reports the outcome of the
//     request first; a lease without a report does not affect the health of its peer.
//   - While no peer is connected and a request waits, no peer is evicted: each is connected
//     to, one that has just refused after ReplenishMin to ReplenishMax. So a request fails
//     for lack of a connection only if no peer accepts one.
//   - The last connected peer is never evicted for its health. Failures are judged by package
//     outlier, as those of workers are: no peer is evicted while the others fail in the same
//     way, because the fault is then elsewhere.
//
// # Sources
//
// Pool, tiers and thresholds: Hyperscale AD-28. Weighted rendezvous: Schindelhauer
// and Schomaker (2005). Two choices: Mitzenmacher (2001). Where this package departs
// from AD-28: docs/decisions/0016.
package relaypool
