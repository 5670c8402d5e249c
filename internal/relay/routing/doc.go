// Package routing keeps, for every service, what a request needs to be carried:
// whether this relay is affine to it, the endpoints of its range with their
// weights and warm connections, and otherwise the relays to forward to.
//
// Promise: Service is one atomic load and one map lookup; what it returns stays
// usable while membership and catalogue change. Statistics and connections
// survive every change that does not concern them. A change that touches one
// service recomputes that service only.
//
//	advertise.View ─► Router.Run: plan ─┬─► range  ─► balancer     (affine)
//	  changes of 100 ms     with who    │      └─ links: affinity/peering says what
//	  at one time         just vanished │         to open and when to close
//	                                    └─► relays ─► sticky pool  (forwarding)
//	                                           └─ relayConns: one for each relay,
//	                                              held by the pools that chose it
//
// A service's endpoints are picked by its Choice: by the balancer itself, or by one of
// selection/strategy, which the balancer's knowledge of failures keeps away from what
// it has evicted. Every request begins and ends at the balancer, whoever picked.
//
//	Service.Pick ─► p2c: balancer draws ─────────────────────┬─► ticket
//	             └► else: strategy names one ─► usable? ─► take ┘
//	                          ▲                    │ no: the next
//	                          └────────────────────┘
//
// Rules: Run is the only writer. It makes the connections to a worker before it
// publishes a route, and closes one only when no route has needed it for the drain
// delay, so a request that still holds an old route finds its connection. A
// connection to a relay is held by every service that has a place on it, and a
// place by every request on its way; the last one closes it. Which relays those
// are, three primaries and two backups for each service, is selection/pool's
// business: it runs on goroutines of its own, which Run waits for.
// There is no lock on the path of a request to a worker, and one for a few
// instructions on the path to a relay. Relays and secured endpoints are
// dialled over mutual TLS and must prove to be who was meant; a secured endpoint is
// never spoken to in clear text.
package routing
