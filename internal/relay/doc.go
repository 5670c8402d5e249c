// Package relay is a whole relay: membership, catalogue, routes, the three listeners,
// and the order in which they start and stop.
//
// Promise: when Run returns, no goroutine, listener or connection of the relay is left,
// and a stop loses no request that ends within the drain timeout. New binds the
// addresses, so a port in use is an error before anything was announced; clients are
// refused until the relay is ready for the first time.
//
//	ingress ──┐                         ┌── membership ◄──► gossip
//	          ├─► ingress.Handler ─► routing ◄── advertise (catalogue)
//	peer ─────┘                         └── upstream pools ──► workers, relays
//	admin ──► readiness, metrics, /api/v1/…
//
//	drain: not ready, answers to clients end their connection; undrain reverts it
//	reload: settings of single requests, those of the plan and the log level; the others
//	        are listed; the request log is opened again
//	fleet: other relays are asked for their traffic for an operator, and while a status
//	       page is read
//	start: gossip ─► catalogue settled, connections tried ─► ingress opens ─► ready
//	stop: not ready, answers end connections ─► leave gossip ─► probes notice ─►
//	      ingress closes ─► last requests on kept connections ─► requests end ─► close
//
// Rules: New and Run are called once each. Run starts every goroutine and waits for it.
// Only this package knows the order in which the packages below start and stop.
package relay
