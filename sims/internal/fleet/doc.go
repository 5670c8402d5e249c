// Package fleet contains the model of a fleet that the simulations share: numbered relays and
// workers with their ids, ways to connect them, and the changes of the connections over time.
// Package queueing adds requests to it. Scenario surge has slots instead of connections, and
// scenario gossip runs real members.
//
// # Promise
//
// Ringway's strategies are the real packages: plans of package affinity, tables of package
// peering. The strategies of other systems (Hyperbahn, Finagle's deterministic aperture,
// deterministic subsetting of the SRE book, random subsetting of gRFC A68) follow their
// descriptions or their code, with exact integers in place of floating point. The same fleet
// is connected the same way on every machine.
//
// # Picture
//
//	Size ──► New ──► Fleet ──► Strategy.Connect ──► Graph ──► Measure: coverage, load
//	                   │                              └─────► Moved: before and after
//	                   ├─────► Mesh: relays with a peering table each, and a clock that
//	                   │       the caller advances
//	                   └─────► RelayIDs, WorkerIDs ──► affinity.Plan ──► EachConnection
//
// # Rules
//
// Values belong to one goroutine. The package reads no clock, and random numbers come from
// the caller.
package fleet
