// Package selection decides which endpoint of a relay's range gets a request.
//
// # Promise
//
// Each request goes to the better of two endpoints drawn in proportion to their
// weights, or to the best of four or six if the first pairs look bad. "Better" means a
// lower product of expected latency, expected queue and a penalty for failures. Queues
// that are usual in the range count little compared with the latency. An endpoint that is slow
// gets single requests until one of its answers is good; time alone does not make it
// attractive. A good endpoint that was without a request for too long gets one. An endpoint that
// fails fast never looks fast, a new endpoint is neither flooded nor starved, and statistics
// survive every change of the range. At low traffic only as many endpoints are used as get enough
// requests for a useful estimate, and traffic leaves the nearest tier only if that has too few
// healthy endpoints. A session goes to the endpoint that has the fewest for its weight, however
// fast it answers.
//
// # Picture
//
//	            Update (membership, affinity)      Refresh (every 250 ms)
//	                   |                                 |
//	                   v                                 v
//	  +----------- table (immutable) ----------+   median M, usual R,
//	  | by tier: alias table -> endpoints that |   slow and half-open endpoints,
//	  | may be drawn; others as a last resort  |   the effective range
//	  +------|----------------|----------------+
//	         v                v
//	     state "a"        state "b"     128 bytes each, atomics, keyed by ID
//	         ^                ^
//	         |                |
//	Pick: draw two, score, count up      Answered, Done: latency, load, success;
//	PickSession: the fewest, count up    Done: count down
//	PickBy: the one that a Chooser prefers, count up
//	Take: the named one, count up
//
//	active --4 failures in a row, high failure share, high latency--> evicted
//	evicted --min(30 s, 2^k s) x U(0.5, 1)--> half_open, one request at a time
//	half_open --success--> active, ramping up for 3 s;  --failure--> evicted, k+1
//
// # Rules
//
//   - The package reads no clock, starts no goroutine, logs nothing and touches
//     no network. The caller passes the time in as an [Instant] and reads the
//     clock once per Pick and once per Done; a clock read costs more than the
//     whole pick.
//   - All methods may be called from any goroutine at the same time. Pick, PickSession,
//     PickBy, Take, Answered and Done take no lock and allocate nothing; Answered and Done
//     take the mutex only when they evict or readmit an endpoint.
//   - Every Pick, PickSession, PickBy and Take that returned no error is given back with exactly
//     one Done. If a body may be long, Answered is called before Done, when the head of the
//     answer arrives: a stream is neither a slow answer nor a silence. Result.Client and
//     Result.AwaitsBody do the same for the time in which a client sends a body.
//   - Pick passes over an endpoint that is at its Limit. A Chooser of PickBy only prefers: which
//     endpoints were tried, are evicted or full, and which are the last resort, is decided here.
//     Take enforces the limits of endpoints that do not refuse requests themselves.
//   - Weights are shares of this relay's traffic: endpoints that are equally good
//     get traffic in proportion to their weights, and an endpoint that is bad gets
//     little traffic whatever its weight.
//   - An endpoint is evicted for failures if it fails more than the others. A fault of the
//     whole range shows in all tiers and evicts no endpoint. At most a
//     third of a tier is evicted, or all of it for failures while another tier is
//     healthy.
//   - The caller calls Refresh about every 250 ms, and at least once a day: Refresh
//     lets evicted endpoints return and keeps the 32-bit time stamps of idle endpoints
//     from wrapping.
//   - Endpoint states are written by concurrent goroutines through atomics. A lost
//     update costs one sample; it never corrupts a count of requests in flight.
//
// # Sources
//
// Power of two choices: Mitzenmacher, "The Power of Two Choices in Randomized
// Load Balancing" (2001). Latency times outstanding requests: Finagle's Peak
// EWMA balancer. Server reports counted together with own sends: Prequal
// (NSDI 2024) and C3 (NSDI 2015). The headroom serves the purpose of Prequal's limit between
// hot and cold: latency decides while queues are usual. Weighted draws: Vose, "A linear algorithm for
// generating random numbers with a given distribution" (1991). Failure shares:
// Wilson, "Probable inference, the law of succession, and statistical
// inference" (1927). Pairs by unequal weights: Brewer, "A model of systematic
// sampling with unequal probabilities" (1963). Tiers: the priority levels of Envoy,
// with their overprovisioning factor.
package selection
