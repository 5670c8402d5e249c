// Package client sends HTTP requests to services through whichever relays are
// there. It is an [http.RoundTripper]; a Go caller needs nothing else.
//
// # Promise
//
// Relays are found by their seeds, and found again when every address has changed.
// Connections to three of them share the requests, two more stand by; what has no
// connection waits for one instead of failing. A request that a relay did not
// answer is sent to another one if that is safe: nothing of it was sent, or its
// method may be repeated and its body be read again.
//
//	http.Client ─► Client.RoundTrip ─► pool (3 primaries, 2 backups) ─► relay ─► worker
//	                  │        ▲
//	                  └ retry ─┘ another relay, at most 5 attempts, within a budget
//
//	seeds ─► discovery.Finder ─► addresses ─► pool
//	         every 60 to 65 s, and when a relay is lost
//
// The service is the host of the URL, as in http://billing/invoices/7. A host with
// a dot in it is left to the relays, which know their domain and routes, and so is a
// request that has a Ringway-Service header.
//
// # Rules
//
//   - RoundTrip may be called from any goroutine, before Run, too, and then waits.
//   - Only Run starts goroutines; it waits for all of them. When it has returned,
//     requests fail; those under way end.
//   - Response bodies must be read to the end or closed, as net/http demands: until
//     then they hold a place on a connection.
//   - Timeouts are the caller's: of the request's context, or of http.Client.
package client
