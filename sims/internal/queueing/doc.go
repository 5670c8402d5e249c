// Package queueing simulates relays that send requests to workers: a discrete-event
// simulation in virtual time, with one selection policy for all clients.
//
// # Promise
//
// The same Config gives the same Result, to the byte, on processors of the same
// architecture. Two policies with the same seed get the same arrivals, the same work per
// request and the same faults, so only the policies cause differences in the results.
//
// # Picture
//
//	arrivals ─► Client.Pick ──0.25 ms──► worker: 4 slots, FIFO of 128, then shed
//	                 ▲                      │
//	            Client.Done ◄──0.25 ms──────┘ the answer, with the worker's load
//
// A request carries 25 ms of work on average: log-normal with sigma 1, or bimodal (90 % of
// 12.5 ms, 10 % of 137.5 ms). A slow worker takes a multiple of that time. Load is a share of
// the capacity of the workers in at least one range. [Measured] replaces work and arrivals by
// those of a real fleet. Without [Callers] there are no timeouts and no retries; with Callers
// an attempt that takes too long times out and is retried, and the worker still serves the old
// attempt. A script may change workers, ranges and the clients that send.
//
// Only completions and retries need a heap: the network delay is constant, so messages arrive
// in the order they were sent, and each direction of the network is a queue.
//
// # Rules
//
// A run uses one goroutine and shares no data with other runs: run as many in parallel as
// there are processors. Clients are called from that goroutine only.
package queueing
