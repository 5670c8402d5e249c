package advertise

import (
	"maps"
	"time"

	"golang.org/x/time/rate"
)

// Limits of the records that one member may replace its own with. A member publishes once a
// second at most, so only one that does not keep to that reaches them. Each newer record costs
// every member the check of a signature and a view, and every relay a plan. Without certificates
// there is no limit: any member could use up that of another.
const (
	// Twice what a member needs that publishes every second.
	updatesPerMinute = 120
	updatesBurst     = 60

	// Attempts to fetch the record of one author that bring nothing: those of three hints, then one
	// in five seconds.
	hintMisses          = 3 * fetchAttempts
	hintMissesPerMinute = 12
)

// updates counts the newer records of each author with a token bucket. Only records that their
// author has signed take a token, so no other member can use up an author's. Run's goroutine
// owns it. Buckets are by node id, so a restart does not fill one.
type updates map[string]*rate.Limiter

// allow takes a token of an author.
func (u updates) allow(author string, now time.Time) bool {
	return u.take(author, now, updatesPerMinute, updatesBurst)
}

// take takes a token of an author from a bucket with that rate.
func (u updates) take(author string, now time.Time, perMinute, burst int) bool {
	bucket := u[author]
	if bucket == nil {
		bucket = rate.NewLimiter(rate.Limit(float64(perMinute)/60), burst)
		u[author] = bucket
	}
	return bucket.AllowN(now, 1)
}

// spent reports whether an author has no token left.
func (u updates) spent(author string, now time.Time) bool {
	bucket := u[author]
	return bucket != nil && bucket.TokensAt(now) < 1
}

// expire removes the buckets that are full again.
func (u updates) expire(now time.Time) {
	maps.DeleteFunc(u, func(_ string, bucket *rate.Limiter) bool { return bucket.TokensAt(now) >= float64(bucket.Burst()) })
}
