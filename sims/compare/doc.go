// Command compare measures Ringway's selection beside the selectors of other
// systems: one pick and its end, at 8, 100 and 1000 endpoints, on one and on
// two processors.
//
//	ringway, time given   selection.Balancer; the caller has read the clock
//	ringway, clock read   the same with its two clock reads inside
//	go-kratos p2c         its module; two clock reads inside, too
//	go-zero p2c_ewma      a port of the picker, see package gozero; two clock reads
//	grpc-go               the least-request balancer of its module; reads no clock,
//	                      knows neither latency nor failures
//
// All sides take turns within one run, each round gives a ratio, and the median
// of the ratios is printed: what another program takes from the machine hits
// both sides. A relay reads the clock twice per request anyway, for its
// deadlines and metrics, which is why the time-given row is the one that
// -check judges.
//
//	go run . -check
//	go test -bench . -cpu 1,2
//
// It is a module of its own, so that the product does not depend on what it is
// compared with.
package main
