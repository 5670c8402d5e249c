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
//	                                    └─► relays ─► balancer   (forwarding)
//	                                           │
//	                                        pools: open first, close after a drain delay
//
// Rules: Run is the only writer. It opens pools before it publishes the route
// that needs them, and closes a pool only when no route has needed it for the
// drain delay, so a request that still holds an old route finds its connection.
// There is no lock on the path of a request.
package routing
