// Package handshake decides which connections become those of members: a handshake must
// prove who connects, and connections that have proven nothing are bounded.
//
// Promise: Listener.Accept returns only connections whose TLS handshake is complete and whose
// certificate may connect. A flood of others takes neither descriptors nor goroutines without
// bound: the oldest of a source, or of all, gives way to a newer one. Handshakes of one source
// that are refused take about an eighth of the processors, however fast it begins them. A member
// that has proven its identity and sends nothing keeps two streams of a protocol (Silent). A listener
// that lacks descriptors or memory is no end of its server (Lasting). On Linux the connections of a host
// that vanishes are closed within three minutes.
//
//	socket ─► Pending (bounded) ─► Pace (per source) ─► handshake ─► Accept
//	                 └► gives way     └► too fast           └► refused: counted by reason, logged rarely
//
// Rules: Run owns the goroutines of handshakes and ends with Close. The listeners of relays,
// of sidecars and of gossip share this package.
package handshake
