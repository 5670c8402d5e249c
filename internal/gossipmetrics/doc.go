// Package gossipmetrics shows what memberlist measures of itself as metrics of ours:
// in base units, under names and labels that are fixed here.
//
//	memberlist ──► go-metrics (one for the whole process) ──► Sink ──► Prometheus
//
// Promise: no name and no label value comes from the network or from the library.
// What memberlist measures and this package does not know is dropped.
//
// Rules: memberlist measures into a global of go-metrics. [Install] sets it, so only a
// program with one member in it calls that, once, before the member starts. A Sink may
// be used by any number of goroutines.
package gossipmetrics
