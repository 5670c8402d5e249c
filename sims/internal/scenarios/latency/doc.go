// Package latency asks how long requests wait when relays choose workers as ours do, and as
// others do.
//
// # Promise
//
// Every policy meets the same arrivals, the same work and the same misfortunes, so that the
// difference between two lines is theirs. Latencies are given as multiples of those of one
// that knows every queue, every speed and who is failing, in the same cell.
//
// # Picture
//
//	topology × load × scenario = cell
//	   cell × policy × seed ──► queueing.Run, on all processors ──► Row, with its curve
//	                                                                 │
//	   tables: means, p99, traffic, special ◄────────────────────────┤
//	   pictures: means, and a whole curve for each scenario ◄────────┤
//	   judge: the promises, of the policy that is judged ◄───────────┘
//
//	scenario.go  what it varies and what must hold
//	grid.go      which cells there are; runs them
//	row.go       what one policy did in one cell
//	judge.go     rows held against the promises
//	tables.go    rows as tables
//	curves.go    rows as pictures
//	lowrate.go   a fleet with next to no traffic
//
// # Rules
//
//   - The policy that is judged drives the real selection.Balancer; its settings are those
//     of selection.Config.
//   - Cells with a special purpose (failures everywhere, recovery, overload) are no part of
//     the geometric means.
package latency
