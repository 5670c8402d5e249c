package budget

import "sync/atomic"

// Budget limits retries. Each request adds to the budget, each retry takes from it.
// Create it with New.
type Budget struct {
	thousandths atomic.Int64 // balance, in thousandths of a retry
	deposit     int64        // thousandths that Earn adds
	full        int64        // upper bound of the balance
}

// New returns a budget that allows share retries per request, in steps of a
// thousandth; with a share of 0 or less it allows none, and savings has no effect. The
// budget starts full: savings, 0 or more, is how many retries can be made in a burst.
func New(share float64, savings int) *Budget {
	b := &Budget{deposit: int64(share * 1000), full: int64(savings) * 1000}
	if b.deposit > 0 {
		b.thousandths.Store(b.full)
	}
	return b
}

// Earn adds the share of one request. Call it once per request.
func (b *Budget) Earn() {
	if b.deposit > 0 && b.thousandths.Load() < b.full { // a full budget is only read, which avoids contention
		b.thousandths.Add(b.deposit)
	}
}

// Spend takes one retry from the budget and reports whether the budget allowed it.
func (b *Budget) Spend() bool {
	if b.thousandths.Add(-1000) >= 0 {
		return true
	}
	b.thousandths.Add(1000)
	return false
}

// Refund returns one retry that Spend took and that was not made.
func (b *Budget) Refund() { b.thousandths.Add(1000) }
