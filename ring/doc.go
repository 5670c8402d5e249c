// Package ring provides the hashing that every member must agree on: a consistent
// hash ring, weighted rendezvous hashing, and a keyed order of ids.
//
// # Promise
//
// Equal inputs give equal results in every process and on every node, regardless of
// the order of the inputs. The hash is XXH64 (github.com/cespare/xxhash); golden
// values in the tests pin it.
//
// # Picture
//
//	         position 0
//	             |                Ring: each member sits at V positions,
//	      b --.--+--.-- a         Hash(member, 0) … Hash(member, V-1).
//	    .                .        A key belongs to the first position at or
//	   c                  c       after Hash(key, 0), clockwise.
//	    .                .
//	      a --.-----.-- b  <- key
//
//	Rendezvous: every (key, node) pair has a score; the highest wins.
//	Order:      ids sorted by Hash(id, Hash(key, 0)).
//
// Use a [Ring] where lookups must be O(log n) or where the walk to the next member
// matters; a [Rendezvous] where members have weights or the share of each must be
// exact; [Order] to sort ids independently of address, rack and deploy batch.
//
// # Rules
//
// The package is pure: no goroutine, no clock, no logging, no lock. Every value is
// immutable and safe for concurrent use. A change of members makes a new value.
package ring
