package ratelimit

import (
	"sync"
	"sync/atomic"
	"time"
)

// Bucket counts the requests of one limit at one relay. The zero value is full.
type Bucket struct {
	full  atomic.Int64 // the time at which it is full, as after takes it
	depth atomic.Int64 // of the part for which that is so

	mu sync.Mutex // one change of the depth at a time
}

// Take takes a request from the bucket. If it is empty, nothing is taken, and wait is the time until
// there is one. Times are since a zero that does not change.
func (b *Bucket) Take(now time.Duration, p Part) (wait time.Duration) {
	for {
		if b.depth.Load() != int64(p.depth) {
			b.change(now, p.depth)
		}
		full := b.full.Load()
		next, early := p.after(time.Duration(full), now)
		if early > 0 {
			return early
		}
		if b.full.CompareAndSwap(full, int64(next)) {
			return 0
		}
	}
}

// change makes the depth that of another rate. What part of the bucket is full stays: one that a low
// rate has emptied is empty for a higher one too, but not for longer than that one takes to fill it;
// and a rate that is raised and lowered again lets no burst pass anew.
func (b *Bucket) change(now, depth time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.depth.Load()
	if before == int64(depth) {
		return
	}
	for {
		full := b.full.Load()
		missing := full - int64(now)
		if before == 0 || missing <= 0 {
			break
		}
		part := min(float64(missing)/float64(before), 1)
		if b.full.CompareAndSwap(full, int64(now)+int64(part*float64(depth))) {
			break
		}
	}
	b.depth.Store(int64(depth))
}

// Return gives back what Take has taken, for a request that another bucket refuses.
func (b *Bucket) Return(p Part) { b.full.Add(-int64(p.interval)) }
