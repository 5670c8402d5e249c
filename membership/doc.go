// Package membership maintains the list of the live members of a cluster and refuses
// processes that do not belong to it.
//
// # Promise
//
// Snapshot is an immutable list of the live members of this cluster and environment, one
// entry for each id, never one of another cluster. It reflects joins within a second and
// crashes within about ten. A split cluster merges again by itself.
//
// # Picture
//
//	 UDP, TCP (mTLS)     memberlist goroutines          one goroutine
//	───────────► transport ──► memberlist ──► delegate ──► mailbox ──► loop ──► Snapshot
//	             │ hello:  ▲     (SWIM)       copies and    newest     table    atomic load
//	             │ cluster?│                  returns       wins                or Watch
//	             │         └ with certificates: internal/trust
//	             └► streams of other protocols ──► HandleStream
//
// # Rules
//
//   - The delegate never calls memberlist, never blocks, and keeps no pointer that it got
//     from memberlist: any of these would deadlock or race.
//   - memberlist's own queue of messages never runs empty: it would assign the numbers of
//     messages again, and lose some (see queue.go).
//   - The loop is the only writer of the table and of snapshots. Readers take no lock.
//   - Each turn of the loop publishes its changes, at most every 5 µs for each member: only
//     the cost of the copy delays a snapshot. It is 1 µs for each member, 9 ms at 10,000, and
//     a fleet of that size that starts within half a minute would occupy a processor of every
//     member. Collecting changes is left to consumers.
//   - A member's name in memberlist consists of id and boot time, so a restarted process
//     with a new address is accepted immediately. The table is keyed by id; the highest
//     boot time wins.
//   - An instance with an older boot time is admitted only if the newer instance is gone
//     and the older one has stayed alive for 45 s: a host whose clock was set back must not
//     be excluded forever, and late gossip about a dead instance must not bring it back.
//   - A snapshot is degraded while this node cannot know whether the others died or the node
//     itself is cut off (see snapshot.go). Diff compares two snapshots.
//   - Every stream begins with a hello in both directions (see hello.go). The delegates of
//     memberlist cannot refuse a process such that both sides learn the reason; the
//     hello can. Packets carry the label cluster/environment.
//   - With certificates package internal/trust stands between the sockets and memberlist:
//     only what the author of a statement has signed, within limits, comes through, and
//     snapshots contain only instances whose certificate it has checked. Unproven lists the
//     other instances, Doubters the members that doubt others without a cause.
//   - Package internal/gossip has the formats of both.
//   - With certificates streams use mutual TLS. TLS checks the chain; the hello checks
//     whether the member belongs to the cluster and matches its certificate.
//   - With a Keyring packets are encrypted: outsiders cannot read or send them. Keys are
//     rotated across the fleet without a restart, and a member that missed a rotation
//     catches up (see keys.go).
//   - Package discovery resolves seeds, package identity handles certificates; package
//     sharedkey builds on snapshots.
//   - Locks, none held while another is taken: Node.state (lifecycle), mailbox.mu,
//     transport.mu, refusals.mu, ownAddrs.mu, statusBoard.mu, Keyring.mu, and those of package trust.
package membership
