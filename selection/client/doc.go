// Package client sends HTTP requests to services through the relays of a fleet. [Client]
// is an [http.RoundTripper]; a Go program needs nothing else.
//
// # Promise
//
// Relays are found through seeds, even after all of their addresses have changed.
// Connections to three relays share the requests, connections to two more stand by. A
// request waits for a connection if there is none, instead of failing. A request that a
// relay did not answer is retried at another relay if that is safe: nothing of the request
// was sent, or its method is idempotent and its body can be read again.
//
// # Picture
//
//	http.Client ─► Client.RoundTrip ─► pool (3 primaries, 2 backups) ─► relay ─► worker
//	                  │        ▲
//	                  └ retry ─┘ another relay, at most 5 attempts, within a budget
//
//	seeds ─► discovery.Finder ─► addresses ─► pool
//	         every 60 to 65 s, and when a relay is lost
//
// The service is the host of the URL, as in http://billing/invoices/7. If the host contains
// a dot, the relays determine the service from their domain and routes; if the request has
// a Ringway-Service header, they use the header.
//
// # Rules
//
//   - RoundTrip may be called from any goroutine. Calls before Run wait.
//   - Only Run starts goroutines; it waits for all of them. After it has returned, new
//     requests fail; requests in flight end normally.
//   - Response bodies must be read to the end or closed, as net/http requires: until
//     then they occupy a place on a connection.
//   - The caller sets timeouts: in the request's context, or in http.Client.
package client
