// Package expiry removes what readers find dead, without making them wait.
//
// Its promise: whoever meets a stale entry hands over its key and goes on; the
// entry is looked at again, once, and removed only if it is still stale then. A
// reader is never delayed, never fails, and never decides anything.
//
//	reader ── Observe(key) ──► claimed already? ── yes ──► deduped
//	                                │ no
//	                                ▼
//	                          1,024 waiting? ──── yes ──► rejected_capacity
//	                                │ no
//	                                ▼ queued
//	         Run ──► at most 32 at once ──► Expire(key) ──► expired | fresh | already
//	                                             │
//	                                             └── then, whatever happened, the
//	                                                 key is free to be observed again
//
// The contract of Expire is what makes a removal happen once. It re-checks and
// removes in one step of whoever owns the entries, and that step is the one that
// a graceful removal takes as well: the first of the two removes and says so, the
// second finds the entry gone and answers [Already]. An entry renewed since it
// was observed is [Fresh]. The scheduler itself knows nothing of freshness.
//
// Rules:
//
//   - Observe may be called from any goroutine. It takes one short lock, which
//     no Expire is called under.
//   - Run owns one goroutine for each Expire that runs and waits for all of them.
//   - Expire bounds its own time. An error, a panic or a runtime.Goexit in it
//     frees the key and the place, is counted and logged, and costs no other key
//     anything; the next observation tries again.
//   - What waits when Run ends goes on waiting; a later Run takes it up.
//
// The idea is that of the expire scheduler in Rivet's envoy load balancing.
package expiry
