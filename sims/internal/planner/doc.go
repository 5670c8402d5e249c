// Package planner answers how many relays a fleet needs for a rate of requests and a p99, with
// which minimums, and what they cost.
//
// # Promise
//
// The same settings and seed give the same answer, in some seconds for any size. If no fleet
// reaches the p99, the answer is none, and the reason names what limits it: the service times
// themselves, the number of workers, or the settings.
//
// # Picture
//
//	minimums ──► search.go: the fewest relays that keep every limit   capacity.Fleet.Cost
//	                 │                                                (plans of package affinity)
//	                 ▼
//	             simulate.go: p99 with the balancer of the relays     queueing.Run
//	                 │
//	                 ▼
//	             the fewest relays, then the fewest connections; the others with the reason
//
// # What is simulated
//
// A part of a large fleet: fewer workers and relays with the same rate for each worker, the
// same minimums and the same workers for each relay. The time of an answer has the time at the
// worker, its queue, and half a millisecond for the network. Workers are equal and do not fail,
// and no request is refused.
package planner
