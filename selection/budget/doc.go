// Package budget limits retries to a share of the requests, so that a fleet in
// trouble is not sent more traffic for being in trouble.
//
// # Promise
//
// In the long run there are at most share retries for each request. What is saved
// up lets the death of one peer with many requests in flight cost none of them.
//
//	request ── Earn: share of a token ──►┌────────────┐
//	                                     │ 0…savings  │──► Spend: one token, or no retry
//	                                     └────────────┘
//
// # Rules
//
//   - All methods may be called from any goroutine. There is no lock and no clock:
//     a budget does not fill while nothing is asked.
//   - A full budget is only read, so that Earn costs next to nothing while all is
//     well.
//
// # Source
//
// Finagle's retry budget, without its clock.
package budget
