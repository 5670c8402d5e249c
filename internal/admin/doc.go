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
// delay the data plane. On loopback every caller may who asks for an address or a name
// of the process and was not passed on by a proxy or a relay; elsewhere Access asks for
// a token or a certificate. Probes are open to all. A page of another site that a
// browser shows may change nothing anywhere. A unix socket is never open to another
// user, not even while it is made. Profiles are there only when asked for.
package admin
