// Package history records what a fleet did, and judges the record by rules that hold for
// every fleet, for tests.
//
// # Promise
//
// A test appends entries, as JSON lines if the history is kept. Judge finds each violation of the
// rules and names its line; Expect fails a test with them. The rules do not depend on what a test does
// to its fleet.
//
// # Picture
//
//	clients ──► request ─┐
//	journals ─► executed ├─► History ──► Judge(Limits) ──► violations
//	test ─────► down, up ┤      └─► JSON lines
//	            share,   │
//	            slots    ┘
//
// # Rules
//
//   - Nothing is judged that was not recorded: a history without shares has no worker below its share.
//   - Times are those of one clock. Entries may be appended in any order.
//   - A request that was sent while its endpoint was down for less than the limit is allowed: a relay
//     cannot know of a crash sooner than by its failure.
package history
