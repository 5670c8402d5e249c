// Package routing keeps, for every service, what a request needs to be carried:
// whether this relay is affine to it, the endpoints of its range with their
// weights and warm connections, and otherwise the relays to forward to.
//
// Promise: Service is one atomic load and one map lookup; what it returns stays
// usable while membership and catalogue change. Statistics and connections
// survive every change that does not concern them. A change that touches one
// service recomputes that service only.
//
//	advertise.View ─► Router.Run: plan ─┬─► range  ─► balancer   (affine)
//	  changes of 100 ms     with who    └─► relays ─► balancer   (forwarding)
//	  at one time         just vanished        │
//	                                        links: affinity/peering says what to
//	                                        open and when to close, upstream does it
//
// Rules: Run is the only writer. It makes the pools of a route before it publishes
// it, and closes one only when no route has needed it for the drain delay, so a
// request that still holds an old route finds its connection.
// There is no lock on the path of a request. Relays and secured endpoints are
// dialled over mutual TLS and must prove to be who was meant; a secured endpoint is
// never spoken to in clear text.
package routing
