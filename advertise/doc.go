// Package advertise distributes the services that workers offer to all members.
//
// # Promise
//
// Every member that has the same records and sees the same members publishes the same
// [View]; an endpoint is in a view only while its worker is alive, and a withdrawn
// endpoint does not come back.
//
// # Picture
//
//	Offer, Drain, State                     View, Watch
//	          |                                            ^
//	          v              Catalogue.Run                 |
//	 +-----------------+    one goroutine    +-------------------------+
//	 | own record      |-------------------> | Store ⋈ alive members   |
//	 | 1 publication/s |                     | = view                  |
//	 +-----------------+                     +-------------------------+
//	     |                                      ^                ^
//	     v named broadcast, key = node id       | mailbox        | adsync/1
//	 ~~~~~~~~~~~~~~~~~~~~~~~ gossip ~~~~~~~~~~~~~~~~        full exchange
//	       fast, loses some                            slow, repairs everything
//
// # Rules
//
//   - One writer per record. The record of one life of a worker (node id and epoch) is
//     replaced by one with a higher sequence; of two different records with the same
//     sequence, the one with the larger hash wins. Membership decides which life of an
//     id is current, so a record of another life, or a forged one, never hides the
//     endpoints of the running worker.
//   - If members have certificates, a record counts only with the signature of its
//     author. The signature is checked before the record is stored or passed on: for
//     gossip on Run's goroutine, for exchanges on their own. A record whose author is
//     not proven yet is parked, separate from the store. A hint is not signed; it causes
//     at most a fetch.
//   - [Rules] determine which offers become endpoints. They are applied where records and
//     members are joined, so that stores are equal even where rules differ.
//   - Liveness comes only from membership, content only from records. When a member
//     fails, the next view lacks its endpoints; its record is kept for ten minutes, its
//     floor for a day.
//   - Only workers offer services, and only relays state their traffic and the settings of their
//     plan. A record of a member with another role is refused, or never visible if it came
//     before its member. [View.Relays] has the statements of live relays.
//   - The records of relays have a root of their own, and exchanges with members of earlier
//     releases leave them out: those members refuse the record of a relay.
//   - Everything from the network is treated as hostile: sizes are checked before memory
//     is allocated, and an invalid record is counted and dropped.
//   - Run's goroutine owns the store and the view builder; they need no lock. Exchanges
//     send requests to that goroutine. Catalogue.mu guards only the values that Offer,
//     State and Drain set, the mailbox's lock only the mailbox, the watches' lock only
//     the watches; no two of these locks are held at the same time.
//   - Views are immutable. Readers cannot slow down the writer, and a lookup takes no
//     lock. Two successive views share everything that did not change: a change copies
//     the path to its services and an arc of their rings.
//
// Each turn of Run publishes one view with all that came in the meantime. No delay collects
// changes: a view costs what has changed in it, 20 to 50 µs for a record among 10,000 workers,
// less than the check of its signature. Consumers to which a change costs more collect
// changes themselves, as a relay does for its plans.
package advertise
