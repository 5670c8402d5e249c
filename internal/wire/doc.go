// Package wire has what relays, sidecars and Go clients agree on in requests and answers:
// the names of header fields, the codes of answers, the answers of a worker itself, the
// limit of a body that is sent again, and the fields for the time left.
//
//	client ─► relay (proxy/ingress ─► proxy/upstream) ─► sidecar ─► service
//	            └──────────────── wire ──────────────────┘
//
// Rules: constants and functions of one request or answer only, without state, and no import of
// another package of Ringway, so that a sidecar or a client links nothing of a relay. The names and codes are part of the
// protocol between members: other versions read them, so they never change.
package wire
