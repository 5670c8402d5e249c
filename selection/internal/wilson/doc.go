// Package wilson judges a share by few observations.
//
// # Promise
//
// Of two endpoints that failed half of their requests the one with a thousand
// requests is surely bad, the one with two perhaps not. [LowerBound] says how bad
// an endpoint is at the least.
//
// # Picture
//
//	 share that is sure      share that was seen
//	         |                       |
//	0 -------+-----------------------+-------------- 1
//	         <- z deviations, fewer ->
//	            with more requests
//
// # Rules
//
//   - One implementation for all that evict by a failure share.
//   - Decayed counts, which are no whole numbers, are fine.
package wilson
