// Package trust decides what of the gossip's bytes is let through to memberlist, and who stated it,
// in a cluster whose members have certificates.
//
// # Promise
//
// memberlist receives only messages of members whose certificate this node has checked, sent to
// this node, lately, once, and within the bounds of one certificate. About an instance it receives
// only what that instance has signed, and a death by the word of another member only as a
// suspicion.
//
// # Picture
//
//	socket ──► Receive ─► seal, certificate, replay, signature ─┐
//	           guard.go         │ not known: parked, and        ▼
//	                            │ requested (introduce.go)   inspect ──► Config.Deliver, to memberlist
//	stream ──► Accepted, Dialled: exchanges of states ─────────▲  ▲
//	           inspect_stream.go                               │  └ doubts (doubt.go)
//	                                     proof.go: is the instance what gossip reports?
//	socket ◄── Wrap ◄── own announcement, signed (incarnation.go) ◄── memberlist
//
// # Rules
//
//   - A packet counts once a session with its sender has begun, by the hello of a stream or by the
//     answer to a nonce (replay.go).
//   - An instance signs its incarnation with its metadata when both leave. Doubts about it count up
//     to that incarnation, and a member begins few of them. Doubters names those that send more.
//   - A missing certificate is requested from the member that announced its holder and from the
//     holder. What depends on it waits, within bounds.
//   - What one certificate can make grow is bounded for that certificate: bounds.go has the table.
//   - A Guard starts no goroutine: Run, Sweep and the callers of Receive are those of package
//     membership. Methods may be called from any goroutine.
//   - Locks, none held while another is taken: exchanges.mu, proofs.mu, ownStatement.mu, doubts.mu,
//     Guard.sealing; and Guard.mu, with which proofs.mu is never taken.
package trust
