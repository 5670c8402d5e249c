// Package memnet is a network in memory: packets and streams between virtual
// IP:port addresses, with the faults that real networks have.
//
// Promise: what is sent between two hosts with an open path arrives after the
// latency, unless a packet is lost on purpose; what is sent over a cut path
// behaves as on a real network (packets vanish, streams stall and go on when the
// path heals, dials hang until their context ends). All waiting is on condition
// variables, channels and timers, so a cluster on a memnet runs inside a
// testing/synctest bubble, where a day of virtual time costs seconds.
//
//	Host 10.0.0.1                    Network                       Host 10.0.0.2
//	  ListenPacket ── WriteTo ──► path open? ─► lost? ─► latency ──► queue ── ReadFrom
//	  Dial ─────────────────────► path open? ─► bound? ─► latency ─► Accept
//	  conn.Write ───────────────► buffer, readable after the latency, while
//	                              the path is open ────────────────► conn.Read
//
// Rules:
//
//   - A Host is what one process sees: it has the three methods that a
//     membership.Network needs. Addresses of other hosts cannot be bound on it.
//   - Loss hits packets only: a stream hides loss, as TCP does.
//   - The network starts no goroutine; timers deliver. Network.Close ends every
//     blocked call, so a bubble that closes its network can end.
//   - Locks: a conn's or socket's own mutex may be held while Network.mu is read;
//     never the other way round.
//   - Faults are drawn from the seed, but two timers of one instant fire in any
//     order, so a history is not replayed exactly: assert invariants, not traces.
package memnet
