// Package overload bounds how many requests of one service wait for their answers, by
// what the endpoints complete.
//
// Promise: a service that has more to do than it can is kept at work and at a delay that
// clients still wait for. While requests do not pile up nothing is bounded: not by how
// long answers take, not by how many requests wait, not because there are more of them
// than a moment ago.
//
//	Enter ──► waiting ──► Answered, Left or GaveUp
//	  │                      │
//	  └── Refused            └── Tick: how long answers took, how many there were
//	                               └──► Limit
//
// An answer counts when it begins. A stream, a tunnel or a download that lasts afterwards
// waits for nothing and is not counted; long polls wait by nature, and are told from a
// queue by this: their number does not grow while they wait.
//
// # How it works
//
// Endpoints that are full let requests wait, and then even the fastest answers are late.
// The delay is how much later the fastest tenth is than it was in quiet times. Only where
// the delay is considerable, more requests wait than the endpoints complete in the
// allowed time, and their number grows, requests pile up. Then
//
//	limit = completions per second · (usual time of an answer + allowed delay)
//
// which is the product of bandwidth and time that TCP BBR keeps in flight, with an
// allowance in place of a gain. It ends some seconds after the last refusal.
//
// Two things that look like a queue are none. An answer that takes longer than before
// while the number of those that wait stays the same is how the service is now. And where
// fewer requests are completed because of the limit, it was too low.
//
// # Rules
//
// The package reads no clock. Enter, Answered, Left and GaveUp may be called from any
// goroutine and cost a few atomic operations; one goroutine calls Tick.
package overload
