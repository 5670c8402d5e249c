// Package memnet is a network in memory: packets and streams between virtual IP:port
// addresses, with the faults of real networks.
//
// # Promise
//
// Data sent between two hosts with an open path arrives after the latency, unless a packet
// is lost on purpose. Over a cut path the network behaves like a real one: packets vanish,
// streams stall and continue when the path heals, dials hang until their context ends. All
// waiting is on condition variables, channels and timers, so a cluster on a memnet runs
// inside a testing/synctest bubble, where a day of virtual time costs seconds.
//
// # Picture
//
//	Host 10.0.0.1                    Network                       Host 10.0.0.2
//	  ListenPacket ── WriteTo ──► path open? ─► lost? ─► latency ──► queue ── ReadFrom
//	  Dial ─────────────────────► path open? ─► bound? ─► latency ─► Accept
//	  conn.Write ───────────────► buffer, readable after the latency, while
//	                              the path is open ────────────────► conn.Read
//
// # Rules
//
//   - A Host is the network as one process sees it: it has the three methods that a
//     membership.Network needs. Addresses of other hosts cannot be bound on it.
//   - Loss affects only packets: a stream hides loss, like TCP.
//   - The network starts no goroutine; timers deliver. Network.Close ends every blocked
//     call, so a bubble that closes its network can end.
//   - Locks: the mutex of a conn or socket may be held while Network.mu is taken for
//     reading; never the other way round.
//   - Faults are drawn from the seed, but two timers with the same time fire in any order,
//     so a run is not reproducible in every detail: assert invariants, not traces.
package memnet
