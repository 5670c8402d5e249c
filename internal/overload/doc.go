// Package overload bounds how many requests of one service wait for their answers, by
// the number that the endpoints complete.
//
// Promise: a service with more requests than capacity is kept busy, at a delay that clients
// still wait for. While requests do not pile up there is no limit: neither long answers, nor
// many waiting requests, nor more requests than a moment ago lead to one.
//
//	Enter ──► waiting ──► Answered, Left or GaveUp
//	  │                      │
//	  └── Refused            └── Tick: how long answers took, how many there were
//	                               └──► Limit
//
// An answer counts when it begins. A stream, a tunnel or a download that continues
// afterwards does not wait and is not counted. Long polls wait intentionally; they differ
// from a queue because their number does not grow while they wait.
//
// # How it works
//
// Endpoints that are full let requests wait, and then even the fastest answers are late.
// The delay is how much later the fastest tenth is than in quiet times. Requests pile up
// only if the delay is considerable, more requests wait than the endpoints complete in the
// allowed time, and their number grows. Then
//
//	limit = completions per second · (usual time of an answer + allowed delay)
//
// This is the product of bandwidth and time that TCP BBR keeps in flight, with an
// allowance instead of a gain. The limit ends some seconds after the last refusal.
//
// The wait for a connection counts only beyond three seconds, because connections cost this
// process time, too. A request that got no answer in time counts in full, so a service whose
// connections never open is limited.
//
// Times are judged by fifty answers, so that chance does not look like a delay. While more
// requests wait than that product, ten answers are enough, because the queue must not
// exceed the patience of the clients before there are fifty.
//
// Two cases look like a queue but are none. If answers take longer than before while the
// number of waiting requests stays the same, the service has become slower. If fewer
// requests are completed because of the limit, the limit was too low.
//
// # Rules
//
// The package reads no clock. Enter, Answered, Left and GaveUp may be called from any
// goroutine and cost a few atomic operations; only one goroutine calls Tick.
package overload
