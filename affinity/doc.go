// Package affinity works out who connects to whom: which relays serve a service,
// and which slice of the service's workers each of them holds connections to.
//
// # Promise
//
// Every relay computes the plan alone and all arrive at the same one from the same
// members. With R relays, W workers, at least m relays per worker and at least p
// workers per relay:
//
//   - every worker has min(m, R) relays or more, wherever it runs, and no relay is without
//     workers;
//   - the weights of a range sum to 1 and, when relays carry equal traffic, give every
//     worker the load that its own weight asks for, as nearly as the connections allow.
//
// With projection, in a fleet of one place and workers of equal weight:
//
//   - every worker has exactly m relays where m·W ≥ p·R and m ≤ R; elsewhere their
//     number differs by at most one and is never below min(m, R);
//   - the sizes of any two ranges differ by at most one and none is below min(p, W);
//   - the fleet holds max(m·W, p·R) connections (never more than R·W), the fewest that
//     satisfy both;
//   - loads are exactly equal (the one exception is with [Shape.AppendWeights]).
//
// With rendezvous, a member that joins or leaves moves its own connections only; ranges
// differ in size, and loads are equal to one part in a million.
//
// # Picture
//
// The relays of a service stand evenly spaced on the ring of its workers. Each
// connects to the workers from its own place up to the place of the m-th relay after
// it, so its range ends exactly where that relay's begins. 3 workers per gap, m = 3:
//
//	workers  0  1  2  3  4  5  6  7  8  9 10 11 | 0 ...
//	relay 0  [-----------------------)          |
//	relay 1           [-----------------------) |
//	relay 2                    [----------------+-- ...
//	relay 3  -----------------)           [-----+-- ...
//
// Members that name their datacenter are put in groups, each with a ring of its own:
//
//	fra: 4 relays, 8 workers    enough of both: nobody else's business
//	par: 3 relays, 1 worker     its relays are at home in fra, too (the same region)
//	nyc: 1 relay,  6 workers    two of any relays make up the number for each worker
//
// Layers, from the arithmetic up: [Range] is one relay's slice, [Shape] the arithmetic
// of counts (no names), [Slots] the choice of the relays that serve a service, [Plan]
// all of it for one service, with names, places, weights and either [Strategy].
//
// # Rules
//
// Everything here is pure: no goroutine, no clock, no logging, no lock. Values are
// immutable and safe for concurrent use. Ranges are computed in integers only: floating
// point rounds neighbouring boundaries apart on some sizes and some processors, and
// would leave a worker one relay short (10 relays, 61 workers, m = 3). Where weights
// decide a fallback, the floating point is of the kind that is the same everywhere.
// What to do about connections that are already open is not decided here.
package affinity
