// Package relay is a whole relay: membership, catalogue, routes, the three
// listeners, and the order in which they start and stop.
//
// Promise: when Run returns, nothing of the relay is left, and a stop loses no
// request that ends within the drain timeout. The listeners are bound by New, so
// a port that is taken is an error before anything was announced.
//
//	ingress ──┐                         ┌── membership ◄──► gossip
//	          ├─► ingress.Handler ─► routing ◄── advertise (catalogue)
//	peer ─────┘                         └── upstream pools ──► workers, relays
//	admin ──► readiness, metrics, /api/v1/…
//
//	drain: not ready, answers to clients end their connection; undrain takes it back
//	reload: settings of single requests and the log level; the rest is named
//	stop: not ready ─► leave gossip ─► probes see it ─► requests end ─► close
//
// Rules: New and Run are called once each. Every goroutine is started by Run and
// waited for by it. The packages below do not know each other's order; this one
// does.
package relay
