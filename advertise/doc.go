// Package advertise knows who offers what.
//
// Its promise: every member that hears the same records and sees the same
// members publishes the same [View]; an endpoint is in a view only while its
// worker is alive, and nothing withdrawn comes back.
//
//	Offer, Drain, Withdraw                  View, Watch, WatchService
//	          |                                            ^
//	          v              Catalogue.Run                 |
//	 +-----------------+    one goroutine    +-------------------------+
//	 | own record      |-------------------> | Store ⋈ alive members   |
//	 | 1 publication/s |                     | = view, at most 1/50 ms |
//	 +-----------------+                     +-------------------------+
//	     |                                      ^                ^
//	     v named broadcast, key = node id       | mailbox        | adsync/1
//	 ~~~~~~~~~~~~~~~~~~~~~~~ gossip ~~~~~~~~~~~~~~~~        full exchange
//	       fast, loses some                            slow, repairs everything
//
// Rules:
//
//   - One writer per record. The record of one life of a worker (node id and
//     epoch) is replaced by a higher sequence; two different records of one
//     sequence are settled by the larger hash. Between two lives of one id
//     membership decides, so that a new life's record, or a forged one, never
//     hides the endpoints of the life that is running.
//   - A record counts because its author signed it, where members have certificates.
//     It is checked before it is stored or passed on: gossip on Run's goroutine,
//     exchanges on their own. One whose author is not proven yet is parked, apart
//     from the store. A hint is not signed and causes a fetch at most.
//   - [Rules] say which offers become endpoints. They are applied where records and
//     members are joined, so that stores stay equal whatever the rules are.
//   - Liveness comes from membership only, content from records only. A member
//     that fails takes its endpoints out of the next view; its record stays for
//     ten minutes, its floor for a day.
//   - Only workers offer. A record of a relay or gate is never visible.
//   - Everything from the network is hostile until decoded: sizes are bounded
//     before anything is allocated, and a bad record is counted and dropped.
//   - Run's goroutine owns the store and the view builder; there is no lock on
//     them. Exchanges ask that goroutine for what they need. Catalogue.mu guards
//     only what Offer, Drain and Withdraw hand over, the mailbox's lock only the
//     mailbox, the watches' lock only who watches which service; none of them is
//     ever held while another is taken.
//   - Views are immutable. Nothing a reader does can slow the writer, and looking
//     something up takes no lock. Two views share all that did not change between
//     them: a change copies the path to its services and an arc of their rings.
//
// A view appears at once after 50 ms without one, and otherwise at the end of
// those 50 ms, so that a burst costs one view and a single change costs no wait.
package advertise
