// Package gossip asks how soon all members of a fleet know of what happens in it, and how many
// bytes that costs each of them.
//
// # Promise
//
// The members are real: package membership on an unmodified memberlist, and package advertise,
// over membership/memnet under a virtual clock, where a minute of hundreds of members takes a
// second. Bytes are counted where the network takes them. What is said of a fleet that was not
// run is said with the formula and with its error at a size that was.
//
// # Picture
//
//	form ──► idle ──► (join, leave, join, crash, burst of changes) × n      for 50, 200, 500
//	           │         │
//	        bytes    until 95 % and the last see it in their view, bytes beyond idle
//	           └────┬────┘
//	                ▼
//	     y = a + b·g(members), fitted without the largest fleet and held against it
//
// # Rules
//
//   - Nothing is mocked between two catalogues' views; what is thinned out is only the talk while
//     a fleet is formed, which is not measured.
//   - memberlist draws from its own source of chance and goroutines run in any order, so equal
//     seeds give like results here, not equal ones, unlike in the other scenarios.
//   - A fleet needs all of Go's goroutines for itself: everything that is started in a bubble
//     ends in it.
package gossip
