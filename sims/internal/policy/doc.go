// Package policy implements selection policies for package queueing to compare: Ringway's,
// which is the real selection.Balancer, and reimplementations of policies of other systems.
//
// # Promise
//
// [Ringway] runs the balancer of the relays itself, with load reports, never a copy. The other
// policies follow their published formulas, without transports and connection pools:
//
//	name            picks                                            uses
//	round-robin     the next                                         nothing
//	random          any, by weight                                   nothing
//	least-request   the less busy of two                             own requests in flight
//	ewma            the faster of two, failures counted              latency, alpha 0.2
//	peak-ewma       the lower latency x in flight of two             Finagle, with failure accrual
//	prequal-0.6     the fastest of those not busy                    three probes per request
//	omniscient      the shortest expected delay                      the real state of all workers
//
// The omniscient policy is greedy: a reference, not a bound. The omniscient policy also skips
// failing workers.
//
// # Rules
//
// All policies draw by weight, except round-robin and omniscient. A client belongs to one run
// and one goroutine.
//
// # Sources
//
// Finagle: PeakEwma.scala, P2CPick.scala and FailureAccrualPolicy.scala. Prequal: Wydrowski et
// al., "Load is not what you should balance" (NSDI 2024).
package policy
