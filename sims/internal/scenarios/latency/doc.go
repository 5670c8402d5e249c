// Package latency compares the latency of requests with Ringway's selection and with the
// selection policies of other systems.
//
// # Promise
//
// Every policy gets the same arrivals, the same work and the same faults, so only the policies
// cause differences between two lines. Latencies are multiples of the latency of the
// omniscient policy in the same cell.
//
// # Picture
//
//	topology × load × scenario = cell
//	   cell × policy × seed ──► queueing.Run, on all processors ──► Row, with its curve
//	                                                                 │
//	   tables: means, p99, traffic, special ◄────────────────────────┤
//	   pictures: means, and a whole curve for each scenario ◄────────┤
//	   judge: the promises, for the judged policy ◄──────────────────┘
//
//	scenario.go  settings and promises
//	grid.go      lists and runs the cells
//	row.go       the results of one policy in one cell
//	judge.go     checks rows against the promises
//	tables.go    rows as tables
//	curves.go    rows as pictures
//	lowrate.go   a fleet with very little traffic
//
// # Rules
//
//   - The judged policy runs the real selection.Balancer; its settings are those of
//     selection.Config.
//   - The geometric means exclude cells with a special purpose (failures everywhere, recovery,
//     overload).
package latency
