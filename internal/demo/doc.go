// Package demo runs a whole fleet in one process: relays and workers that find each other
// by gossip over loopback sockets, clients that send requests, and a table that shows the
// distribution of the requests.
//
// The fleet is secured like a real one: certificates of a temporary authority, encrypted
// gossip, mutual TLS between relays.
//
// Promise: only the service time of the workers is simulated, and all numbers come from the
// admin API of the relays and from the clients. When Run returns, nothing of the fleet is
// left.
//
//	load ──HTTP──► relay-1 … relay-6 ──HTTP──► worker-01 … worker-24
//	  │              │    gossip among all          ▲ backend + agent
//	  │              └─► admin API ─► observer      └── killer
//	  └───────────────────────────► table, report
//
// Rules: Run owns every goroutine: it stops the killer, then the load, then the fleet, and
// waits for each. Only the fleet holds the relays and agents; the observer has only the
// addresses of their admin API. The seed determines service times, arrivals and the killed
// workers, but not the scheduling of goroutines, so two runs are similar and not equal.
package demo
