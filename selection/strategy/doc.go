// Package strategy holds the ways to choose an endpoint other than the default:
// one small type for each, behind one front.
//
// # Promise
//
// What a strategy promises it keeps for every request: an excluded endpoint is
// never picked, a deterministic strategy gives the same answer in every process,
// and when nothing can be picked the error says why. [Strategy.Explain] runs the
// code of [Strategy.Pick], so what it tells is what happens.
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
//	              pivot 1 ────┘   pivot 2 ───┘    walk on to a fresh one, wrap at
//	                                              the end; at most max_scan stale
//	                                              ones for all pivots together;
//	                                              then the lower load, plus jitter
//
// # Rules
//
//   - All methods may be called from any goroutine. Pick takes no lock, starts no
//     goroutine, reads no clock and allocates nothing. Update and what Run
//     measures take a mutex to publish the next table.
//   - Endpoints go by two names. ID is one instance and is what a request
//     excludes; Node is stable over restarts and is what is hashed, sorted and
//     preferred, so that a restart moves no key.
//   - A returned *Endpoint belongs to a published table: read it, do not write it.
//   - A request without a key goes anywhere: stable draws by weight, stable-sha256
//     evenly. Otherwise all such requests would meet at one endpoint.
//   - What a request excludes is its own affair; nothing is remembered.
//   - Only Run starts goroutines; it waits for all of them.
//
// # Sources
//
// The strategies from manual to closest and stable-sha256 are those of XIP-79 of
// XMTP; slots is Rivet's envoy load balancer: virtual nodes (Karger et al., 1997)
// with power-of-K choices (Mitzenmacher, 2001). Where the originals were wrong or
// left something to chance the comments say so.
package strategy
