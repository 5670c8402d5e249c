// Package membership says who is in the cluster, and keeps out who does not
// belong to it.
//
// Promise: Snapshot is an immutable list of the live members of this cluster and
// environment, one entry for each id, never one of another cluster. It follows
// joins within a second and crashes within about ten. A cluster that was split
// grows together again by itself.
//
//	 UDP, TCP (mTLS)     memberlist goroutines          one goroutine
//	───────────► transport ──► memberlist ──► delegate ──► mailbox ──► loop ──► Snapshot
//	             │ hello:        (SWIM)       copies and    newest     table    atomic load
//	             │ cluster?                   returns       wins                or Watch
//	             └► streams of other protocols ──► HandleStream
//
// Rules:
//
//   - Nothing in the delegate calls memberlist, blocks, or keeps a pointer that
//     memberlist gave it: all of that deadlocks or races.
//   - The loop is the only writer of the table and of snapshots. There is no lock
//     on the way to a reader.
//   - A member names itself to memberlist by id and boot time, so a restarted
//     process with a new address is accepted at once. The table is keyed by id;
//     the highest boot time wins.
//   - A boot older than one that was seen is let in only when the newer one is gone
//     and it has stayed alive for 45 s: a host whose clock went backwards must not
//     stay out, and the last traces of a dead life must not come in.
//   - A snapshot is degraded while this node cannot tell whether the others died or
//     it was cut off itself (see degraded.go). Diff compares two snapshots.
//   - Every stream begins with a hello both ways (see hello.go). No delegate of
//     memberlist can refuse a stranger so that both sides know why; the hello
//     can. Packets carry the label cluster/environment.
//   - With certificates a statement counts because its author signed it. Packets,
//     metadata and notices are signed (guard.go, statement.go), memberlist sees only
//     what is signed and in bounds (inspect.go), and snapshots show only instances
//     whose certificate was checked (proof.go). A certificate that is missing is
//     asked for (introduce.go). The other instances are listed by Unproven.
//   - With certificates streams run over mutual TLS. TLS checks the chain, the hello
//     whether a member belongs here and is who its certificate says.
//   - With a Keyring packets are encrypted: outsiders cannot read or send them. Keys
//     rotate across the fleet without a restart, and a member that missed a rotation
//     catches up (see keys.go).
//   - Seeds are package discovery's, certificates package identity's; package
//     sharedkey builds on snapshots.
//   - Locks, none held while another is taken: Node.state (lifecycle),
//     mailbox.mu, transport.mu, refusals.mu, statusBoard.mu, Keyring.mu, proofs.mu;
//     guard.mu, under which proofs.mu is not taken.
package membership
