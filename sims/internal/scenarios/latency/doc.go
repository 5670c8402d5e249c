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
//	unequal relays: traffic × plan × load ──► queueing.Run ──► p99 next to equal traffic
//
//	latency.go  settings, promises and pictures
//	grid.go     lists and runs the cells, and checks their results
//	ramp.go     a load that rises through the capacity
//	tables.go   results as tables
//	unequal.go  relays with unequal traffic, and zones
//
// # Rules
//
//   - The judged policy runs the real selection.Balancer; its settings are those of
//     selection.Config.
//   - The geometric means exclude cells with a special purpose (failures everywhere, recovery,
//     overload).
package latency
