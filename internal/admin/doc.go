// Package admin is the HTTP API for operators and probes: the paths that every member
// serves, relay or worker. A relay adds its own paths to the same mux.
//
// Promise: reading never changes anything; a change needs a POST. The answers are JSON;
// /healthz reports that the process runs, /readyz whether the process should get traffic,
// with every reason why not.
//
//	GET /healthz   GET /readyz   GET /metrics
//	GET /api/v1/members          GET /api/v1/checksum
//
// Rules: handlers only read immutable snapshots, so they need no lock and cannot delay the
// data plane. On loopback a caller is accepted if the Host header is an address or a name
// of the process and if no proxy or relay forwarded the request; on other addresses Access
// requires a token or a certificate. Probes are open to all. A page of another site in a
// browser can never change anything. A unix socket is never open to another user, not even
// while the socket is created. Profiles are served only if configured.
package admin
