// Package queueing simulates relays that send requests to workers: discrete events, virtual
// time, one policy of choice for all clients.
//
// # Promise
//
// The same Config gives the same Result, to the byte, on processors of one kind. Two policies at the
// same seed meet the same arrivals, the same amount of work in each request and the same
// misfortunes, so that differences between them are theirs.
//
// # Picture
//
//	Poisson ──► Client.Pick ──0.25 ms──► worker: 4 slots, FIFO of 128, then it sheds
//	                 ▲                      │
//	            Client.Done ◄──0.25 ms──────┘ the answer, with the worker's load
//
// A request carries 25 ms of work on average: log-normal with sigma 1, or bimodal (90 % of
// 12.5 ms, 10 % of 137.5 ms). A slow worker takes a multiple of it. Load is a share of the
// capacity of the workers that some client reaches. Without [Callers] nobody retries and
// nobody gives up; with them an attempt that takes too long is given up, served all the same,
// and made again. A script may change workers, ranges and who sends.
//
// Only completions need a heap: what takes equally long arrives in the order it was sent, so
// the two directions of the network are queues.
//
// # Rules
//
// A run uses one goroutine and shares nothing with others: run as many at once as there are
// processors. Clients are called from that goroutine only.
package queueing
