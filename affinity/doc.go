// Package affinity computes the connection plan of a service: which relays serve the
// service, and to which of its workers each of these relays connects.
//
// # Promise
//
// Every relay computes the plan alone, and the same members give the same plan on every
// relay. With R relays, W workers, at least m relays per worker and at least p workers per
// relay:
//
//   - every worker has at least min(m, R) relays, wherever the worker runs, and every
//     relay has workers;
//   - the weights of a range sum to 1 and give every worker a load in proportion to its
//     weight, whatever traffic each relay carries ([Relay.Traffic]). Where the connections do
//     not allow that, the fullest worker is as little loaded as they allow.
//
// With projection, when all members have the same place and workers have equal weight:
//
//   - every worker has exactly m relays where m·W ≥ p·R and m ≤ R; elsewhere the relay
//     counts of two workers differ by at most one and are never below min(m, R);
//   - the sizes of any two ranges differ by at most one and none is below min(p, W);
//   - the fleet holds max(m·W, p·R) connections (never more than R·W), the fewest that
//     satisfy both minimums;
//   - loads are exactly equal if relays carry the same traffic, with one exception; see
//     [Shape.AppendWeights].
//
// With rendezvous, a member that joins or leaves moves only its own connections; ranges
// differ in size, and loads are equal to one part in a million.
//
// # Picture
//
// The relays of a service are evenly spaced on the ring of its workers. The range of a
// relay runs from its own position to the position of the m-th relay after it, so the two
// ranges touch without overlap. Example with 3 workers per gap and m = 3:
//
//	workers  0  1  2  3  4  5  6  7  8  9 10 11 | 0 ...
//	relay 0  [-----------------------)          |
//	relay 1           [-----------------------) |
//	relay 2                    [----------------+-- ...
//	relay 3  -----------------)           [-----+-- ...
//
// Members that name their datacenter are put in groups, each with its own rings. A datacenter is
// also called a zone. Traffic stays in its zone until the workers there would get more than
// [PlanConfig.ZoneSlack] times the mean load; the rest goes to zones that have room, the nearest
// first. With 4 relays and 8 workers in fra, 3 and 1 in par (the same region), 1 and 6 in nyc, of
// every hundred requests
//
//	fra keeps 50
//	par keeps 4, because it has one worker, sends 10 to fra, and 23 to nyc as a guest
//	nyc keeps 13
//
// Layers, from the arithmetic up: [Range] is one relay's part of the ring, [Shape] computes
// ranges and weights from counts (no names), [Slots] chooses the relays that serve a
// service, and [Plan] combines them for one service, with names, places, weights and
// either [Strategy].
//
// # Rules
//
// The package is pure: no goroutine, no clock, no logging, no lock. Values are immutable
// and safe for concurrent use. Ranges are computed in integers only: with floating point,
// neighbouring boundaries would round differently at some sizes and on some processors,
// and a worker would be one relay short (10 relays, 61 workers, m = 3). Where weights
// decide a fallback, only floating-point operations are used whose results are the same on
// every processor. Open connections are the concern of package peering.
package affinity
