// Package worker is the agent beside service instances: it tells the relays what
// the instances offer while they are healthy, and takes the offer back in time
// when one goes.
//
// # Promise
//
// A service is offered while the agent has joined and its check passes; one
// without a check is offered at once. What happens to one service (a failed
// check, a drain, a change of its settings) never touches another. When an
// operator drains a service, or the agent stops, the relays are told to send
// nothing new before anything goes, so that neither loses a request.
//
// # Picture
//
//	settings ─┐                                   checkers, one a service
//	          ├─► Service … ─┐                      │ verdicts
//	  file  ──┘  (reload)    ▼                      ▼
//	  drain, undrain ────► offering ── Condition … ──► Offers (pure) ──► catalogue ──► gossip
//
//	Run: gossip ─► checks ─► offer ─► … stop ─► draining ─► (spreads) ─► leave ─► exit
//
// With a certificate the agent also takes the services' traffic, in [sidecar]:
// relays reach them there over mutual TLS. Without one relays connect to the
// services themselves.
//
// # Rules
//
//   - New binds and validates, Run starts everything and waits for all of it.
//   - [Offers] alone decides what is offered; it is pure. offering.mu guards the
//     conditions and is held while the catalogue is told, so that what is told
//     last is what is true last. It is never held while a goroutine is waited for.
//   - Reloads run one at a time (Agent.reloading). Each is applied whole or
//     refused whole.
//   - The file of services is looked at every second; SIGHUP and the admin API
//     have it and the settings read at once.
//
// [sidecar]: https://pkg.go.dev/github.com/ringway/ringway/internal/worker/sidecar
package worker
