// Package paths sends what odd clients and odd services send over each of the four ways that a
// request can take, and checks that all four keep the same promises.
//
// Promise: what one way refuses, passes on or cuts off, each way does. No client reads the
// answer to another, and no endpoint is blamed for a client.
//
//	direct           client ──► relay ──────────────────────────► service
//	hop              client ──► gate  ──► relay ─────────────────► service
//	sidecar          client ──► relay ──────────────► sidecar ──► service
//	hop and sidecar  client ──► gate  ──► relay ────► sidecar ──► service
//
// Rules: relays, gates, workers and the service run in this process, on real sockets; the ways
// with a sidecar have certificates. A test speaks to the ingress with bytes of its own, and the
// service answers with bytes of its own, so that no library hides what arrived. One fleet
// serves all tests of a way.
package paths
