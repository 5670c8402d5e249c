package ratelimit

import (
	"sync/atomic"
	"time"
)

// Bucket counts the requests of one limit at one relay. The zero value is full.
type Bucket struct{ full atomic.Int64 }

// Take takes a request from the bucket. If it is empty, nothing is taken, and wait is the time until
// there is one. Times are since a zero that does not change.
func (b *Bucket) Take(now time.Duration, p Part) (wait time.Duration) {
	for {
		full := b.full.Load()
		// A lower rate before may have emptied the bucket for longer than this one fills it in.
		if empty := int64(now + p.depth); full > empty {
			b.full.CompareAndSwap(full, empty)
			continue
		}
		next, early := p.after(time.Duration(full), now)
		if early > 0 {
			return early
		}
		if b.full.CompareAndSwap(full, int64(next)) {
			return 0
		}
	}
}

// Return gives back what Take has taken, for a request that another bucket refuses.
func (b *Bucket) Return(p Part) { b.full.Add(-int64(p.interval)) }
