// Package ring holds the hashing that every member must agree on: a consistent
// hash ring, weighted rendezvous hashing, and a keyed order of ids.
//
// # Promise
//
// Equal inputs give equal answers in every process and on every node, whatever
// order the inputs came in. All of it rests on XXH64 (github.com/cespare/xxhash),
// pinned by golden values in the tests.
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
// Which one: a [Ring] where lookups must be O(log n) or where the walk to the
// next member matters; a [Rendezvous] where members carry weights or the share
// of each must be exact; [Order] to give a list a place for each id that has
// nothing to do with address, rack or deploy batch.
//
// # Rules
//
// Everything here is pure: no goroutine, no clock, no logging, no lock. Every
// value is immutable once built and safe for concurrent use. A change of members
// makes a new value.
package ring
