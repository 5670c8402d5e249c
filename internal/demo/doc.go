// Package demo runs a whole fleet in one process: relays and workers that find
// each other by gossip over loopback sockets, clients that send requests, and a
// table that shows where they go.
//
// The fleet is as a real one should be: certificates of a throw-away authority,
// encrypted gossip, mutual TLS between relays.
//
// Promise: nothing in it is simulated but the service time of the workers, and
// what it shows is what the relays' admin API and the clients say. When Run
// returns, nothing of the fleet is left.
//
//	load ──HTTP──► relay-1 … relay-3 ──HTTP──► worker-01 … worker-12
//	  │              │    gossip among all          ▲ backend + agent
//	  │              └─► admin API ─► observer      └── killer
//	  └───────────────────────────► table, report
//
// Rules: Run owns every goroutine: it stops the killer, then the load, then the
// fleet, and waits for each. Only the fleet holds the relays and agents; the
// observer knows nothing of them but the addresses of their admin API. The seed
// decides service times, arrivals and victims, but not how goroutines are
// scheduled, so two runs are alike and not equal.
package demo
