// Command affinity compares ways to decide which relay connects to which worker: ours
// (projection by rank and by slot, rendezvous) and those that others use (Hyperbahn,
// Finagle's deterministic aperture, deterministic subsetting of the SRE book, random
// subsetting of gRFC A68), at eight fleet sizes.
//
// Promise: the figures are the same on every run and every machine. With --check it ends
// with exit code 1 and names what does not hold of what the documentation promises.
//
//	fleets ──► strategy.connect ──► graph ──► balance: coverage, load, connections
//	                                     └──► churn: before and after one member
//
// Every section makes its own tables; --update writes each between its markers in a page.
//
//	go run ./sims/affinity --check
//	go run ./sims/affinity --update docs/concepts/affinity.md
package main
