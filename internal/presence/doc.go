// Package presence is what the relays know of attached workers: those that take part by sessions
// (package session) and not by gossip.
//
// # Promise
//
// An attached worker is a member, on every relay, while a live relay lists it, its certificate is
// checked, and its record is signed by it. The rest of the code sees one kind of member.
//
//	worker ══ session ══► Server ──► own list ══ presence/1 ══► lists of the other relays
//	                                     │                             │
//	                     Node.Watch ──►  Fleet: merge  ◄───────────────┘
//	                                     │
//	                 Snapshot, Watch, Verify, records: advertise.Gossip
//
// # Rules
//
//   - A list has one writer, its relay, and counts only while gossip sees that life of the relay
//     alive. No votes, and no clock of another member.
//   - Of several lives of one id the highest epoch counts. A relay, gate or observer is never
//     replaced by an attached worker, and a gossiping worker only by a later life.
//   - A relay keeps one stream to each other relay, on which the other sends its list, then its
//     changes, and, where they are asked for, the certificates and records of its workers. A stream
//     that ends is opened again and begins with the whole list, so that no change can be missed.
//   - While the snapshot of the node is degraded, the lists of relays that it has lost still count:
//     a relay that is cut off keeps its workers, as it keeps gossiping ones. A list whose relay is silent
//     is emptied while other relays are heard, or after minutes.
//   - The catalogue reports which records it has and which it has dropped. What is dropped is asked for
//     again.
//   - Fleet.mu guards all state; Run's goroutine merges it and publishes snapshots. Sessions and
//     streams have goroutines of their own, which Run waits for.
package presence
