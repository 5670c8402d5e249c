package pool

import (
	"math"
	"slices"
	"time"

	"github.com/ringway/ringway/selection/internal/wilson"
)

const (
	// countMemory is the time constant of the counts of requests and failures.
	countMemory = 10 * time.Second
	// estimateMemory: in such a time a bad latency fades to 1/e, and one failure of
	// a row is forgotten by the estimate.
	estimateMemory = time.Minute
	// maxPenalty bounds what failures add to the estimate.
	maxPenalty = 10 * time.Second

	// minRequests is from how many recent requests a failure share is judged.
	minRequests = wilson.Enough
	// percentileSamples is how many latencies the 99th percentile is taken from.
	percentileSamples = 100
	// latencyStep: percentile and average are compared at every tenth sample.
	latencyStep = 10
)

// health is what the requests to one peer have shown.
type health struct {
	latency   time.Duration // average of successes, 0 before the first
	sampledAt time.Time
	samples   int
	recent    []time.Duration // the last percentileSamples
	p99       time.Duration   // of recent, 0 before the first ten

	failures, requests float64 // decayed to countedAt
	countedAt          time.Time

	consecutive int // failures since the last answer
	failedAt    time.Time
}

// count adds a request to the decayed counts.
func (h *health) count(failed, requests float64, now time.Time) {
	k := math.Exp(-max(0, now.Sub(h.countedAt).Seconds()) / countMemory.Seconds())
	h.failures, h.requests, h.countedAt = h.failures*k+failed, h.requests*k+requests, now
}

// success takes a latency. The first one is the average; then
// new = alpha·latency + (1−alpha)·old.
func (h *health) success(latency time.Duration, alpha float64, now time.Time) {
	h.count(0, 1, now)
	h.consecutive = 0
	if h.latency == 0 {
		h.latency = latency
	} else {
		h.latency = time.Duration(alpha*float64(latency) + (1-alpha)*float64(h.latency))
	}
	h.latency = max(h.latency, 1) // 0 means none
	h.sampledAt = now
	if len(h.recent) < percentileSamples {
		h.recent = append(h.recent, latency)
	} else {
		h.recent[h.samples%percentileSamples] = latency
	}
	if h.samples++; h.samples%latencyStep == 0 {
		h.p99 = percentile99(h.recent)
	}
}

func (h *health) failure(now time.Time) {
	h.count(1, 1, now)
	h.consecutive++
	h.failedAt = now
}

// shed counts an answer that only says "busy".
func (h *health) shed(now time.Time) {
	h.count(0, 1, now)
	h.consecutive = 0
}

// forgive is for a peer that comes back: what it did before it went shall not
// send it away again. Its latency is remembered.
func (h *health) forgive() { h.consecutive, h.failures, h.requests = 0, 0, 0 }

// errorRate is the share of failures, with one good request that nobody sent: so
// it fades as what it rests on does.
func (h *health) errorRate(now time.Time) float64 {
	h.count(0, 0, now)
	return h.failures / (h.requests + 1)
}

// relaxed is the latency for comparisons: one above typical fades towards it, or a
// peer that is avoided could never show that it has recovered.
func (h *health) relaxed(typical time.Duration, now time.Time) time.Duration {
	if h.latency <= typical {
		return h.latency
	}
	k := math.Exp(-now.Sub(h.sampledAt).Seconds() / estimateMemory.Seconds())
	return typical + time.Duration(k*float64(h.latency-typical))
}

// estimate is what a draw compares. An untried peer is taken for a typical one; a
// peer that has only ever failed is so, too, plus the penalty, and never for free.
func (h *health) estimate(typical, baseline time.Duration, now time.Time) time.Duration {
	estimate := typical
	if h.latency != 0 {
		estimate = h.relaxed(typical, now)
	}
	failures := h.consecutive - int(now.Sub(h.failedAt)/estimateMemory)
	if failures <= 0 {
		return estimate
	}
	return estimate + min(maxPenalty, time.Duration(min(failures, 1000))*3*min(baseline, maxPenalty))
}

// percentile99 is the nearest-rank 99th percentile of at most 100 samples: the
// second largest of 100, the largest of fewer.
func percentile99(samples []time.Duration) time.Duration {
	var first, second time.Duration
	for _, s := range samples {
		if s > first {
			first, second = s, first
		} else if s > second {
			second = s
		}
	}
	if len(samples) < percentileSamples {
		return first
	}
	return second
}

// lastMedian is the median of the last latencyStep samples, of which there are a
// multiple.
func (h *health) lastMedian() time.Duration {
	end := (h.samples-1)%percentileSamples + 1
	last := slices.Clone(h.recent[end-latencyStep : end])
	slices.Sort(last)
	return last[latencyStep/2]
}

// wilsonLowerBound is the share of failures that is sure.
func wilsonLowerBound(failures, requests float64) float64 {
	return wilson.LowerBound(failures, requests, wilson.Sure)
}
