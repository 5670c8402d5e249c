package client

import "sync/atomic"

// budget limits retries to a share of the requests: each request puts a part of a
// token in, each retry takes a whole one out. The idea is Finagle's.
type budget struct {
	thousandths *atomic.Int64
	deposit     int64
}

// savings is how many retries a quiet client can have at once.
const savings = 100

func newBudget(share float64) budget {
	b := budget{new(atomic.Int64), int64(share * 1000)}
	if b.deposit > 0 {
		b.thousandths.Store(savings * 1000)
	}
	return b
}

// earn is called once for each request.
func (b budget) earn() {
	if b.thousandths.Load() < savings*1000 {
		b.thousandths.Add(b.deposit)
	}
}

// spend takes a retry out and reports whether there was one.
func (b budget) spend() bool {
	if b.thousandths.Add(-1000) >= 0 {
		return true
	}
	b.thousandths.Add(1000)
	return false
}
