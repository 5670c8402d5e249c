// Package databases tests TCP sessions with servers and clients of others: Redis, Redis
// with TLS that passes through, and PostgreSQL with psql.
//
// Promise: while workers come, drain and die, no session is lost but those of the workers
// that died, over a relay and over a gate in front of it, with mutual TLS between them.
//
//	redis inline ─┐           ┌─ relay ══ sidecar ── redis-server
//	psql ─────────┼─► gate ───┤
//	TLS with SNI ─┘           └─────── ══ sidecar ── postgres
//
// Rules: `make test-tcp` runs the tests; elsewhere they are skipped, because they need the
// servers. Each server has a directory and a port of its own and ends with its test. As
// root PostgreSQL runs as the user postgres, because it refuses to run as root.
package databases
