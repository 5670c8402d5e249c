// Package gossipmetrics exports the measurements of memberlist as Ringway metrics: in base
// units, with fixed names and labels.
//
//	memberlist ──► go-metrics (one for the whole process) ──► Sink ──► Prometheus
//
// Promise: no name and no label value comes from the network or from the library. A
// measurement of memberlist that this package does not know is dropped.
//
// Rules: memberlist writes its measurements to a global variable of go-metrics. [Install]
// sets the variable, so only a program with a single member calls Install, once, before the
// member starts. A Sink is safe for concurrent use.
package gossipmetrics
