package budget

import "sync/atomic"

// Budget is what retries are paid from. Create it with New.
type Budget struct {
	thousandths atomic.Int64
	deposit     int64
	full        int64
}

// New allows retries worth share of the requests, in steps of a thousandth; 0 and
// less allow none, not even savings. The budget begins full: savings, 0 or more, is
// how many retries can be made at once after a quiet time.
func New(share float64, savings int) *Budget {
	b := &Budget{deposit: int64(share * 1000), full: int64(savings) * 1000}
	if b.deposit > 0 {
		b.thousandths.Store(b.full)
	}
	return b
}

// Earn is called once for each request.
func (b *Budget) Earn() {
	if b.deposit > 0 && b.thousandths.Load() < b.full { // almost always full: no write, no contention
		b.thousandths.Add(b.deposit)
	}
}

// Spend takes a retry out and reports whether there was one.
func (b *Budget) Spend() bool {
	if b.thousandths.Add(-1000) >= 0 {
		return true
	}
	b.thousandths.Add(1000)
	return false
}

// Refund gives back what Spend took for a retry that was not made.
func (b *Budget) Refund() { b.thousandths.Add(1000) }
