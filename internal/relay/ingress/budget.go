package ingress

import "sync/atomic"

// budget limits retries to a share of the requests, so that a fleet in trouble
// is not sent more traffic for being in trouble. Every request puts a part of a
// token in, every retry takes a whole one out. What is saved up lets the death
// of one worker with many requests in flight cost none of them.
//
// The idea is Finagle's retry budget, without its clock.
type budget struct {
	thousandths atomic.Int64
	deposit     int64
}

// savings is how many retries a quiet relay can have at once.
const savings = 500

// newBudget allows retries worth share of the requests, 0 to 1.
func newBudget(share float64) *budget {
	b := &budget{deposit: int64(share * 1000)}
	if b.deposit > 0 {
		b.thousandths.Store(savings * 1000)
	}
	return b
}

// earn is called once for each request.
func (b *budget) earn() {
	if b.thousandths.Load() < savings*1000 { // almost always full: no write, no contention
		b.thousandths.Add(b.deposit)
	}
}

// spend takes a retry out and reports whether there was one.
func (b *budget) spend() bool {
	if b.thousandths.Add(-1000) >= 0 {
		return true
	}
	b.thousandths.Add(1000)
	return false
}
