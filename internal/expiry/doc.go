// Package expiry removes entries that readers find stale, without delaying the readers.
//
// # Promise
//
// A reader that finds a stale entry passes its key to [Scheduler.Observe] and continues.
// The entry is checked again, once, and removed only if it is still stale. A reader is
// never delayed, never fails because of a removal, and never decides on one.
//
// # Picture
//
//	reader ── Observe(key) ──► claimed already? ── yes ──► deduped
//	                                │ no
//	                                ▼
//	                          1,024 waiting? ──── yes ──► rejected_capacity
//	                                │ no
//	                                ▼ queued
//	         Run ──► at most 32 at once ──► Expire(key) ──► expired | fresh | already
//	                                             │
//	                                             └── after any result the key can
//	                                                 be observed again
//
// The contract of Expire ensures that an entry is removed only once. Expire re-checks and
// removes in one step of the owner of the entries, the same step that a graceful removal
// uses: the first of the two removes the entry and reports it, the second finds no entry
// and returns [Already]. An entry renewed since it was observed is [Fresh]. The scheduler
// itself does not know which entries are stale.
//
// # Rules
//
//   - Observe may be called from any goroutine. It takes one short lock; Expire is never
//     called with that lock held.
//   - Run owns one goroutine for each running Expire and waits for all of them.
//   - Expire limits its own time. An error, a panic or a runtime.Goexit in Expire frees
//     the key and the place, is counted and logged, and does not affect other keys; the
//     next observation tries again.
//   - Keys that wait when Run ends keep waiting; a later Run handles them.
//
// # Source
//
// The expire scheduler of Rivet's envoy load balancing.
package expiry
