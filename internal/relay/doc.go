// Package relay is a whole relay: membership, catalogue, routes, the three
// listeners, and the order in which they start and stop.
//
// Promise: when Run returns, nothing of the relay is left, and a stop loses no
// request that ends within the drain timeout. Addresses are bound by New, so a port
// that is taken is an error before anything was announced; clients are refused until
// the relay is ready for the first time.
//
//	ingress ──┐                         ┌── membership ◄──► gossip
//	          ├─► ingress.Handler ─► routing ◄── advertise (catalogue)
//	peer ─────┘                         └── upstream pools ──► workers, relays
//	admin ──► readiness, metrics, /api/v1/…
//
//	drain: not ready, answers to clients end their connection; undrain takes it back
//	reload: settings of single requests and the log level; the rest is named
//	start: gossip ─► catalogue settled, connections tried ─► ingress opens ─► ready
//	stop: not ready, answers end connections ─► leave gossip ─► probes see it ─►
//	      ingress closes ─► last requests on kept connections ─► requests end ─► close
//
// Rules: New and Run are called once each. Every goroutine is started by Run and
// waited for by it. The packages below do not know each other's order; this one
// does.
package relay
