// Package gossip measures how soon all members of a fleet know of an event, and how many bytes
// each member sends for that.
//
// # Promise
//
// The members are real: package membership on an unmodified memberlist, and package advertise,
// over internal/memnet with a virtual clock, which simulates a minute of hundreds of members
// in a second. The network counts the bytes. Every prediction for a fleet that was not run
// comes with its formula and the formula's error at a measured size.
//
// # Picture
//
//	form ──► idle ──► (join, leave, join, crash, burst of changes) × n      for 50, 200, 500
//	           │         │
//	        bytes    until 95 % and the last see it in their view, bytes beyond idle
//	           └────┬────┘
//	                ▼
//	     y = a + b·g(members), fitted without the largest fleet and checked against it
//
// # Rules
//
//   - Nothing is mocked between the views of two catalogues. Packets are dropped only while a
//     fleet forms, which is not measured.
//   - memberlist uses its own random source and goroutines run in any order, so equal seeds
//     give similar results here, not equal results as in the other scenarios.
//   - A goroutine that starts in a bubble of the virtual clock ends in that bubble.
package gossip
