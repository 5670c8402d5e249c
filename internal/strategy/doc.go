// Package strategy provides the selection strategies other than the default: one small
// type for each, behind [Strategy].
//
// # Promise
//
// An excluded endpoint is never picked, a deterministic strategy gives the same result in
// every process, and if no endpoint can be picked, the error states why.
// [Strategy.Explain] runs the code of [Strategy.Pick], so its description matches the
// pick.
//
//	name           picks                                              reads
//	stable         highest weighted rendezvous score of (key, node)   key, weight
//	stable-sha256  by rank at evenly spaced positions, then onwards   key
//	manual         first of the preferred, never another              preferred
//	ordered        first of the preferred, then the others by node    preferred
//	random         uniformly, from crypto/rand                        -
//	closest        least time to connect                              address, preferred
//	farthest       most time to connect                               address, preferred
//	slots          least loaded of K places on a ring of V each       version, signals
//	p2c            (the default: selection.Balancer itself; here only a name)
//
// # Picture
//
//	Update(endpoints) ──► sorted, checked ──► table (immutable) ◄── Run: connect times
//	                                            │                   (closest, farthest)
//	                          one atomic load   ▼
//	Pick(key, now, excluded) ──────────► one strategy ──► endpoint, or why none
//
//	slots:  position 0 ─ a ── c ─ b ─── a ── b ─ c ── 2^64
//	                          ▲              ▲
//	              pivot 1 ────┘   pivot 2 ───┘    walk to a fresh endpoint, wrap at
//	                                              the end; at most maxscan stale
//	                                              ones for all pivots together;
//	                                              then the lower load, plus jitter
//
// # Rules
//
//   - All methods may be called from any goroutine. Pick takes no lock, starts no
//     goroutine, reads no clock and allocates nothing. Update and Run take a mutex to
//     publish a new table.
//   - Endpoints have two names. ID identifies one instance; requests exclude endpoints
//     by ID. Node is stable over restarts; strategies hash, sort and prefer by Node, so
//     that a restart moves no key.
//   - A returned *Endpoint belongs to a published table: do not change it.
//   - A request without a key may go to any endpoint: stable draws by weight,
//     stable-sha256 uniformly. Otherwise all such requests would go to one endpoint.
//   - Exclusions apply to one request only; the strategy does not store them.
//   - Only Run starts goroutines; it waits for all of them.
//
// # Sources
//
// The strategies from manual to closest and stable-sha256 are those of XIP-79 of
// XMTP; slots is Rivet's envoy load balancer: virtual nodes (Karger et al., 1997)
// with power-of-K choices (Mitzenmacher, 2001). Comments mark where a strategy departs
// from its source.
package strategy
