// Command compare measures Ringway's selection next to the selectors of other
// systems: one pick and its end, at 8, 100 and 1000 endpoints, on one and on
// two processors.
//
//	ringway, time given   selection.Balancer; the caller has read the clock
//	ringway, clock read   the same, with two clock reads
//	go-kratos p2c         the original module; two clock reads
//	go-zero p2c_ewma      a port of the picker, see package gozero; two clock reads
//	grpc-go               the least-request balancer of the original module; no clock
//	                      reads, uses neither latency nor failures
//
// The sides take turns within one run. Each round gives a ratio, and the median
// of the ratios is printed, because other programs on the machine slow down both
// sides. A relay reads the clock twice per request anyway, for deadlines and
// metrics, so -check judges the time-given row.
//
//	GOWORK=off go run ./compare -check
//	GOWORK=off go test -bench . -cpu 1,2 ./compare
//
// The command is in the module sims/bench, so that Ringway does not depend on the
// systems in the comparison, and outside the workspace, so that they do not raise
// the versions that Ringway is tested with.
package main
