// Package ratelimit decides whether a request exceeds a number of requests per second.
//
// Promise: over ten seconds a bucket lets as many requests pass as its rate allows, however they
// arrive, plus those of its burst. The memory of all buckets of callers together is bounded.
//
//	Rate ──► For(share of this relay) ──► Part ──┐
//	Callers.Bucket(caller and service) ──► Bucket ──► Take ──► 0, or the time to wait
//
// A bucket is the generic cell rate algorithm (ITU-T I.371), which is a token bucket with one number
// of state: the time at which the bucket will be full again. A request moves it by the interval of
// the rate and is refused if the bucket would then be full later than its depth allows. The rate
// belongs to no state, so a relay whose share changes goes on with the same bucket.
//
// # Rules
//
// The package reads no clock, starts no goroutine and allocates only for a caller that is new. All
// methods may be called from any goroutine.
package ratelimit
