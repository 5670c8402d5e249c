// Package api has the answers of the admin API as Go types. Relay and worker fill them; the
// commands, the status page and the demo read them.
//
//	relay, worker, node ── fill ─► api ─► JSON ─► api ◄─ read ── command, demo
//	                               └───────────────────► statuspage
//
// Rules: types, their JSON and what follows from one value only; no handler, no client, and
// no import of a relay or worker. Packages that decide, such as routing and ingress, return their
// own values, and the handlers convert those: docs/architecture_test.go lists who may import this
// package. Scripts read these answers: a field that was there stays, by its name and place, and
// golden_test.go fails when one changes.
package api
