// Package admin is the HTTP API that operators and probes use: what every member
// answers, relay or worker. A relay adds its own paths to the same mux.
//
// Promise: reading never changes anything; what changes something is a POST. The
// answers are JSON; /healthz says that the process runs, /readyz that it should
// get traffic, with every reason why not.
//
//	GET /healthz   GET /readyz   GET /metrics
//	GET /api/v1/members          GET /api/v1/checksum
//
// Rules: handlers only read immutable snapshots, so they need no lock and cannot
// delay the data plane. Access is the listener's business: loopback by default.
package admin
