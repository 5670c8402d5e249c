package queueing

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Result is what one run measured, or several added up.
type Result struct {
	latency *hdrhistogram.Histogram // of successes, in µs
	// Requests arrived after the warm-up; Failed and Shed of them were not served.
	Requests, Failed, Shed int64
	// Evictions by all clients.
	Evictions int
	// Seconds are those of a run with Callers, nil without.
	Seconds []Second
	// VictimShares are, per run, the victim's requests as a multiple of the fair share.
	VictimShares []float64
}

func newResult() Result {
	// 0.1 % exact up to ten minutes.
	return Result{latency: hdrhistogram.New(1, (10 * time.Minute).Microseconds(), 3)}
}

// Add takes in another run of the same cell.
func (r *Result) Add(other Result) {
	if r.latency == nil {
		*r = newResult()
	}
	r.latency.Merge(other.latency)
	r.Requests += other.Requests
	r.Failed += other.Failed
	r.Shed += other.Shed
	r.Evictions += other.Evictions
	r.VictimShares = append(r.VictimShares, other.VictimShares...)
}

// Percentile returns a latency of successful requests, p from 0 to 100.
func (r *Result) Percentile(p float64) time.Duration {
	return time.Duration(r.latency.ValueAtPercentile(p)) * time.Microsecond
}

// ErrorShare is the share of requests that failed or were shed.
func (r *Result) ErrorShare() float64 {
	return float64(r.Failed+r.Shed) / float64(max(r.Requests, 1))
}

func (r *Result) served(latency time.Duration) {
	// Beyond ten minutes it would be dropped, and a bad policy look better.
	_ = r.latency.RecordValue(min(latency.Microseconds(), r.latency.HighestTrackableValue()))
}
