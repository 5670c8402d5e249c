// Package fleet is what simulations of affinity have in common: fleets of numbered relays
// and workers, ways to connect them, and what becomes of the connections over time.
//
// # Promise
//
// Ours is the real thing: plans of package affinity, tables of package peering. What others
// do (Hyperbahn, Finagle's deterministic aperture, deterministic subsetting of the SRE book,
// random subsetting of gRFC A68) follows their descriptions or their code, in exact integers
// where theirs is floating point. The same fleet is connected the same way on every machine.
//
// # Picture
//
//	Size ──► New ──► Fleet ──► Strategy.Connect ──► Graph ──► Measure: coverage, load
//	                   │                              └─────► Moved: before and after
//	                   └─────► Mesh: relays with a peering table each, under a clock that
//	                           the caller moves
//
// # Rules
//
// Values belong to one goroutine. Nothing here reads a clock or draws chance of its own.
package fleet
