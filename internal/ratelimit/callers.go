package ratelimit

import (
	"hash/maphash"
	"strings"
	"sync"
	"time"
)

const (
	// MaxCallers is for how many pairs of caller and service there are buckets. A bucket that is
	// full again is as good as none: of a limit of 10/s these are the pairs with a request in about the
	// last second, of one of 100/h those of up to the last hour.
	MaxCallers = shards * maxInShard

	shards     = 64 // spread the callers, so that requests of different ones rarely wait for a lock
	maxInShard = 1024

	// sweepPause is the time between two searches of one shard for buckets that are full. A search
	// for each request of a caller without a bucket would cost more than the request.
	sweepPause = 100 * time.Millisecond
)

// Caller is whose requests a bucket counts.
type Caller struct{ Name, Service string }

// Callers are the buckets of callers, one for each caller and service.
type Callers struct {
	seed   maphash.Seed
	shards [shards]shard
}

// shard has a part of the callers.
type shard struct {
	mu      sync.Mutex
	buckets map[Caller]*Bucket
	swept   time.Duration
	_       [40]byte // its neighbours are on other cache lines
}

// NewCallers returns the buckets of a relay.
func NewCallers() *Callers { return &Callers{seed: maphash.MakeSeed()} }

// Bucket returns the bucket of a caller, nil if it has none and there are MaxCallers.
func (c *Callers) Bucket(of Caller, now time.Duration) *Bucket {
	s := &c.shards[maphash.Comparable(c.seed, of)%shards]
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.buckets[of]
	if b == nil && s.room(now) {
		b = new(Bucket)
		of.Name = strings.Clone(of.Name) // it may be a part of the head of a request
		s.buckets[of] = b
	}
	return b
}

// room reports whether there is room for one more bucket. The lock is held.
func (s *shard) room(now time.Duration) bool {
	switch {
	case s.buckets == nil:
		s.buckets = map[Caller]*Bucket{}
		return true
	case len(s.buckets) < maxInShard:
		return true
	case now-s.swept < sweepPause:
		return false
	}
	s.swept = now
	left := map[Caller]*Bucket{} // a map does not shrink
	for of, b := range s.buckets {
		if b.full.Load() > int64(now) {
			left[of] = b
		}
	}
	s.buckets = left
	return len(left) < maxInShard
}

// Len returns how many buckets there are.
func (c *Callers) Len() (n int) {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		n += len(s.buckets)
		s.mu.Unlock()
	}
	return n
}
