// Package outlier has the two rules that balancer and pool share for an outlier: how certain a
// failure share must be before an endpoint is evicted, and for how long it is evicted.
//
// # Promise
//
// Of two endpoints that failed half of their requests, the one with a thousand
// requests is certainly bad; the one with two requests may be healthy. [LowerBound]
// returns the failure share that an endpoint has at least. [Eviction] doubles with each
// consecutive eviction and has jitter, so that endpoints evicted together do not return
// together.
//
// # Picture
//
//	    lower bound           observed share
//	         |                       |
//	0 -------+-----------------------+-------------- 1
//	         <-- z deviations: the -->
//	             more requests, the
//	             smaller
//
// # Rules
//
//   - Everything that evicts by a failure share uses this implementation.
//   - Counts may be fractions, such as decayed counts.
//   - Pure: no clock, no random source; the caller passes a random number.
package outlier
