// Package policy holds ways to choose a worker: ours, which is the real selection.Balancer, and
// restatements of what others use, for package queueing to run side by side.
//
// # Promise
//
// [Ringway] drives the balancer that relays run, with its reports of load, never a copy. The
// others follow their published formulas, without their transports and pools:
//
//	name            chooses                                          learns from
//	round-robin     the next                                         nothing
//	random          any, by weight                                   nothing
//	least-request   the less busy of two                             own requests in flight
//	ewma            the faster of two, failures counted              latency, alpha 0.2
//	peak-ewma       the lower latency x in flight of two             Finagle, with failure accrual
//	prequal-0.6     the fastest of those not busy                    three probes per request
//	omniscient      the shortest expected delay                      the truth
//
// The omniscient one is greedy: a reference, not a bound. It also skips whoever is failing.
//
// # Rules
//
// All draw by weight. A client belongs to one run and one goroutine.
//
// # Sources
//
// Finagle: PeakEwma.scala, P2CPick.scala and FailureAccrualPolicy.scala. Prequal: Wydrowski et
// al., "Load is not what you should balance" (NSDI 2024).
package policy
