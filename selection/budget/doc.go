// Package budget limits retries to a share of the requests, so that retries do not
// overload a fleet that already fails.
//
// # Promise
//
// In the long run there are at most share retries per request. The savings are large
// enough to retry all requests in flight at one peer when that peer dies.
//
// # Picture
//
//	request ── Earn: share of a token ──►┌────────────┐
//	                                     │ 0…savings  │──► Spend: one token, or no retry
//	                                     └────────────┘
//
// # Rules
//
//   - All methods may be called from any goroutine. There is no lock and no clock: only
//     requests fill a budget, time does not.
//   - A full budget is only read, so Earn costs almost nothing while there are no
//     retries.
//
// # Source
//
// Finagle's retry budget, without its clock.
package budget
