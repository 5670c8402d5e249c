// Package wilson estimates a failure share from few observations.
//
// # Promise
//
// Of two endpoints that failed half of their requests, the one with a thousand
// requests is certainly bad; the one with two requests may be healthy. [LowerBound]
// returns the failure share that an endpoint has at least.
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
package wilson
