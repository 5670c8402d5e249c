// Package membership says who is in the cluster, and keeps out who does not
// belong to it.
//
// Promise: Snapshot is an immutable list of the live members of this cluster and
// environment, one entry for each id, never one of another cluster. It follows
// joins within a second and crashes within about ten. A cluster that was split
// grows together again by itself.
//
//	 UDP, TCP            memberlist goroutines          one goroutine
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
//   - Every stream begins with a hello both ways (see hello.go). No delegate of
//     memberlist can refuse a stranger so that both sides know why; the hello
//     can. Packets carry the label cluster/environment.
//   - Locks, none held while another is taken: Node.state (lifecycle),
//     mailbox.mu, transport.mu, refusals.mu, statusBoard.mu.
package membership
