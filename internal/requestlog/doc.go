// Package requestlog writes one record of each request that a relay has carried or
// refused: the access log. It also passes records to operators while they watch.
//
// Promise: a request never waits for the log. Records wait in a bounded queue; those that
// do not fit are dropped and counted by reason. A line is one JSON object and is written
// whole, also while files are rotated. Text of clients cannot add a line or a field, and
// every text is bounded.
//
//	ingress ── Record ──► encoder ──► queue ──► writer ──► file, or standard output
//	                         │                    ▲
//	                         │                    └── Reopen, on SIGHUP
//	   │                     └──► taps: a filter and a bounded queue for each reader
//	   └──► the count of a tap without lines
//
// Package ingress decides what a record contains and whether it is kept. The ID of a
// request decides whether it belongs to the sample, so all relays of one request agree. Of
// the requests that no other rule keeps, the slowest of each ten seconds wait until it is
// known which those are.
//
// Rules: a Record is encoded on the goroutine of its request and not kept. [Log.Start]
// starts one goroutine if there is a file, [Log.Close] ends it. Field names are those of
// OpenTelemetry's semantic conventions where these have one; the others begin with
// "ringway.".
package requestlog
