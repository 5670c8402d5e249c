package selection

import "sync/atomic"

// RetryBudget limits retries to a share of the requests, so that retries do not overload a
// fleet that already fails: each request adds to the budget, each retry takes from it. In the
// long run there are at most share retries per request; the savings are large enough to retry
// all requests in flight at one peer when that peer dies.
//
// It is Finagle's retry budget without its clock: only requests fill a budget, time does not.
// Create it with NewRetryBudget. All methods may be called from any goroutine.
type RetryBudget struct {
	thousandths atomic.Int64 // balance, in thousandths of a retry
	deposit     int64        // thousandths that Earn adds
	full        int64        // upper bound of the balance
}

// NewRetryBudget returns a budget that allows share retries per request, in steps of a
// thousandth; with a share of 0 or less it allows none, and savings has no effect. The
// budget starts full: savings, 0 or more, is how many retries can be made in a burst.
func NewRetryBudget(share float64, savings int) *RetryBudget {
	b := &RetryBudget{deposit: int64(share * 1000), full: int64(savings) * 1000}
	if b.deposit > 0 {
		b.thousandths.Store(b.full)
	}
	return b
}

// Earn adds the share of one request. Call it once per request.
func (b *RetryBudget) Earn() {
	if b.deposit > 0 && b.thousandths.Load() < b.full { // a full budget is only read, which avoids contention
		b.thousandths.Add(b.deposit)
	}
}

// Spend takes one retry from the budget and reports whether the budget allowed it.
func (b *RetryBudget) Spend() bool {
	if b.thousandths.Add(-1000) >= 0 {
		return true
	}
	b.thousandths.Add(1000)
	return false
}

// Refund returns one retry that Spend took and that was not made.
func (b *RetryBudget) Refund() { b.thousandths.Add(1000) }
