package relaypool

import (
	"math"
	"slices"
	"time"

	"github.com/ringway/ringway/internal/outlier"
)

const (
	// estimateMemory is the time in which the excess of a high latency decays to 1/e, and
	// in which the estimate ignores one more of several failures in a row.
	estimateMemory = time.Minute
	// maxPenalty limits what failures add to the estimate.
	maxPenalty = 10 * time.Second

	// percentileSamples is the number of latencies for the 99th percentile.
	percentileSamples = 100
	// latencyStep is the number of samples between two checks of the latency.
	latencyStep = 10
)

// health holds the statistics of the requests to one peer.
type health struct {
	latency   time.Duration // average of successes, 0 before the first
	sampledAt time.Time
	samples   int
	recent    []time.Duration // the last percentileSamples
	p99       time.Duration   // of recent, 0 before the first ten

	counts    outlier.Count // decayed to countedAt
	countedAt time.Time     // of the last request

	consecutive int // failures since the last answer
	failedAt    time.Time
}

// record returns what failures are judged by.
func (h *health) record(now time.Time) outlier.Record {
	age := now.Sub(h.countedAt)
	k := math.Exp(-age.Seconds() / outlier.Memory.Seconds())
	return outlier.Record{
		Count:  outlier.Count{Failures: h.counts.Failures * k, Requests: h.counts.Requests * k},
		InARow: h.consecutive, Age: age,
	}
}

// count adds a request to the counts.
func (h *health) count(failures float64, now time.Time) {
	h.counts, h.countedAt = h.record(now).Plus(outlier.Count{Failures: failures, Requests: 1}), now
}

// success adds the latency of a success to the average, an exponentially weighted moving
// average: new = alpha·latency + (1−alpha)·old. The first latency is the first average.
func (h *health) success(latency time.Duration, alpha float64, now time.Time) {
	h.count(0, now)
	h.consecutive = 0
	if h.latency == 0 {
		h.latency = latency
	} else {
		h.latency = time.Duration(alpha*float64(latency) + (1-alpha)*float64(h.latency))
	}
	h.latency = max(h.latency, 1) // 0 would mean no sample
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
	h.count(1, now)
	h.consecutive++
	h.failedAt = now
}

// shed counts an answer of a busy peer.
func (h *health) shed(now time.Time) {
	h.count(0, now)
	h.consecutive = 0
}

// reset clears the failures of a peer that gets a place again, so that old failures do
// not evict it. Its latency is kept.
func (h *health) reset() { h.consecutive, h.counts = 0, outlier.Count{} }

// errorRate returns the failure share, computed as if there had been one more successful
// request. So the share falls towards 0 as the counts decay.
func (h *health) errorRate(now time.Time) float64 {
	r := h.record(now)
	return r.Failures / (r.Requests + 1)
}

// relaxed returns the latency for comparisons. A latency above typical decays towards
// typical; otherwise a slow peer would get no requests and could not show that it has
// recovered.
func (h *health) relaxed(typical time.Duration, now time.Time) time.Duration {
	if h.latency <= typical {
		return h.latency
	}
	k := math.Exp(-now.Sub(h.sampledAt).Seconds() / estimateMemory.Seconds())
	return typical + time.Duration(k*float64(h.latency-typical))
}

// estimate returns the latency that draws compare. A peer without a measured latency
// counts as typical. Each recent failure in a row adds a penalty, also for a peer that
// has only failed.
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

// percentile99 returns the nearest-rank 99th percentile of at most 100 samples: the second
// largest of 100, the largest of fewer.
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

// lastMedian returns the median of the last latencyStep samples. The number of samples
// must be a multiple of latencyStep.
func (h *health) lastMedian() time.Duration {
	end := (h.samples-1)%percentileSamples + 1
	last := slices.Clone(h.recent[end-latencyStep : end])
	slices.Sort(last)
	return last[latencyStep/2]
}
