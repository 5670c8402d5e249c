// Package validation holds the simulations against reality: it runs one case twice, with
// package queueing's model of workers and with a fleet of processes on loopback, and prints
// both side by side.
//
// # Promise
//
// Both sides get the same requests at the same times at the same relays, and each request is
// as much work on both. Relays choose with the same package selection within the same ranges
// of package affinity. What differs is everything else: a real network, real clocks, real
// processes on a machine that does other things as well. All traffic stays on 127.0.0.1, and
// every process that is started ends with the run.
//
// # Picture
//
//	          case: seed, load, slow workers
//	            │                       │
//	simulate (queueing, selection)      │ build, start 6 relays, 20 agents
//	            │  arrivals, work ────► load ──► relay ──► backend (4 slots, sleeps)
//	            ▼                       ▼
//	   latencies, shares       latencies − those of requests without work, shares
//	            └──────────┬────────────┘
//	      connections (peering tables)  │ a worker is killed: events of the relays
//	                       ▼
//	               one table, with the difference
//
// # Rules
//
//   - The load is open: when a request is sent does not depend on answers. It may be sent late
//     because the machine is busy; its latency counts from then, for the generator is no part
//     of the fleet, and the lateness is shown.
//   - Requests without work cost what the machine and the load generator cost; their median is
//     taken off as a constant.
package validation
