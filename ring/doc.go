// Package ring provides the hashing that every member must agree on: a keyed order of ids,
// which makes a ring of them, and weighted rendezvous hashing.
//
// # Promise
//
// Equal inputs give equal results in every process and on every node, regardless of
// the order of the inputs. The hash is XXH64 (github.com/cespare/xxhash); golden
// values in the tests pin it.
//
// # Picture
//
//	Order:      ids sorted by Hash(id, Hash(key, 0)); the last is followed by the first.
//
//	            0 ── relay-3 ── relay-1 ── relay-2 ─┐      another key: another order
//	            └───────────────────────────────────┘
//
//	Rendezvous: every (key, node) pair has a score; the highest wins.
//
//	            key ─► relay-1  0.3 · relay-2  0.9 ◄─ first · relay-3  0.5 ◄─ second
//
// Use [Order] to sort ids independently of address, rack and deploy batch; a [Rendezvous]
// to spread keys over members with weights, so that a member that leaves moves only its own
// keys.
//
// # Rules
//
// The package is pure: no goroutine, no clock, no logging, no lock. Every value is
// immutable and safe for concurrent use. A change of members makes a new value.
package ring
