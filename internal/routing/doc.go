// Package routing keeps, for every service, the data that a request needs: whether this
// relay is affine to the service, the endpoints of its range with their weights and warm
// connections, and otherwise the relays to forward to.
//
// Promise: Service is one atomic load and one map lookup; its result stays usable while
// membership and catalogue change. Statistics and connections survive every change that
// does not concern them. A change of one service recomputes only that service.
//
//	advertise.View ─► Router.Run: plan ─┬─► range  ─► balancer     (affine)
//	  at most every         with who    │      └─ links: internal/peering decides
//	  100 ms              just vanished │         what to open and when to close
//	                                    └─► relays ─► sticky pool  (forwarding)
//	                                           └─ a RelayHold for each relay chosen
//
//	links and RelayHolds hold the pools of connections, one for each address and identity,
//	which the last release closes.
//
// The Choice of a service picks its endpoints: the balancer itself, or a strategy of
// internal/strategy. The balancer decides which endpoints are excluded, such as evicted ones; a
// strategy only orders the others. Every request begins and ends at the balancer, even if a
// strategy picked.
//
//	Service.Pick ─┬► p2c:  Balancer.Pick, PickSession ─┬─► selection.Pick
//	              └► else: Balancer.PickBy ────────────┘
//	                         │           ▲
//	               Exclusion │           │ the first of the others
//	                         └► strategy ┘
//
// Relays state their traffic where it is unequal (see demand). A statement plans the services
// that it concerns anew, with the same connections and other weights.
//
// A program that carries its requests itself sets PickOnly: targets then have no connections.
//
// A service takes TCP sessions if most of its endpoints do; the others are left out.
//
// Rules: Run is the only writer. It creates the pool of a worker's connections before it
// publishes a route, and closes the pool only when no route has needed it for the drain
// delay, so a request with an old route finds its connection. A service whose route cannot be
// computed, even because of a panic, keeps its last route. The connection to a relay
// has one RelayHold for each service that uses it, and requests in flight keep their RelayHold open.
// Package internal/relaypool chooses these relays, at least three
// primaries and two backups for each service; it runs on its own goroutines, which Run
// waits for. The path of a request to a worker takes no lock, the path to a relay takes
// one for a few instructions. Relays and secured endpoints are dialled over mutual TLS
// and must prove their identity; a secured endpoint is never reached in clear text.
package routing
