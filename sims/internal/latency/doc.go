// Package latency compares the policies of package policy on a grid of cells and judges one of
// them by what the documentation promises.
//
// # Promise
//
// The same grid gives the same report, to the byte.
//
//	Grid: cells × policies × seeds ──► queueing.Run, on all processors ──► Results
//	Results ──► Judge: the properties, bound and value ──► report: table, markdown, json, csv
//
// A cell is a topology, a load and a scenario. Latencies are given as a multiple of the
// omniscient policy's in the same cell.
package latency
