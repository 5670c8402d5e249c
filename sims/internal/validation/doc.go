// Package validation compares the simulations with reality: the package runs one case twice,
// with package queueing's model of workers and with a fleet of processes on loopback, and
// prints both results side by side.
//
// # Promise
//
// Both sides get the same requests at the same times at the same relays, with the same work
// per request. Relays use the same package selection within the same ranges of package
// affinity. The rest differs: a real network, real clocks, and real processes on a machine
// that runs other programs as well. All traffic stays on 127.0.0.1, and every started process
// ends with the run.
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
//   - The load is open: the times of requests do not depend on answers. A busy machine may
//     delay the sending of a request. The latency counts from the actual sending, because the
//     generator is not part of the fleet, and the table shows the delay.
//   - Requests without work measure the overhead of the machine and the load generator; their
//     median is subtracted as a constant.
package validation
