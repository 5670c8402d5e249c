// Package worker is the agent next to service instances: it announces healthy instances to
// the relays and withdraws an instance before it stops.
//
// # Promise
//
// A service is offered while the agent has joined and the check of the service passes; a
// service without a check is offered immediately. Changes of one service (a failed check, a
// drain, new settings) never affect another. When an operator drains a service, or the
// agent stops, the relays learn to send nothing new before anything stops, so that neither
// loses a request.
//
// # Picture
//
//	settings ─┐                                   checkers, one per service
//	          ├─► Service … ─┐                      │ verdicts
//	  file  ──┘  (reload)    ▼                      ▼
//	  drain, undrain ────► offering ── Condition … ──► Offers (pure) ──► catalogue ──► gossip
//
//	Run: gossip ─► checks ─► offer ─► … stop ─► draining ─► (spreads) ─► leave ─► requests end ─► sessions end ─► exit
//
// With a certificate the agent also accepts the traffic of the services, in [sidecar]:
// relays reach the services there over mutual TLS. Without a certificate relays connect to
// the services directly.
//
// # Rules
//
//   - New binds and validates, Run starts everything and waits for all of it.
//   - [Offers] alone decides which services are offered; it is pure. offering.mu guards the
//     conditions and is held during a call of the catalogue, so that the last call has the
//     newest state. The mutex is never held while waiting for a goroutine.
//   - Reloads run one at a time (Agent.reloading). Each is applied or refused as a whole.
//   - The agent checks the file of services every second; SIGHUP and the admin API make it
//     read the file and the settings immediately.
//
// [sidecar]: https://pkg.go.dev/github.com/ringway/ringway/internal/worker/sidecar
package worker
