// Package outlier decides which endpoint is evicted for its failures, and for how long: the
// balancer asks it about workers, the pool about the relays that it is connected to.
//
// # Promise
//
// An endpoint is evicted if it fails and the others do not. Of two endpoints that failed half
// of their requests, the one with a thousand requests is certainly bad; the one with two
// requests may be healthy. A fault that all share evicts none, also at the moment at which it
// begins. Evictions in a row double, with jitter, so that endpoints evicted together do not
// return together.
//
// # Picture
//
//	records of the others ─► Others: their sum, without as many as may be evicted, too
//	                            │
//	record of one that fails ─► Limits.Verdict ─► too many failures in a row, while the others answer
//	                            │                 a share that surely exceeds that of the others
//	                            ▼
//	                         Backoff: min(longest, 2^k s)·U(0.5, 1)
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
//   - Everything that evicts for failures uses this implementation. How many may be evicted, and
//     what takes their requests, is decided by the caller.
//   - Counts may be fractions: they decay with the time constant [Memory].
//   - Pure: no clock, no random source; the caller passes ages and a random number. No call
//     allocates but a Verdict with a cause.
package outlier
