package outlier

import (
	"fmt"
	"time"
)

const (
	// Memory is the time constant with which counts decay. An older last request shows nothing
	// about the present.
	Memory = 10 * time.Second
	// Enough is the least number of requests for a judgement by their share. With fewer, a
	// single failure would decide.
	Enough = 20
	// Nowhere is the failure share to expect elsewhere if the requests can go nowhere else.
	Nowhere = 1
)

// Count is a number of recent requests and of those that failed. Both decay.
type Count struct{ Failures, Requests float64 }

func (c Count) share() float64 { return c.Failures / c.Requests }

// Plus returns the sum.
func (c Count) Plus(d Count) Count {
	return Count{Failures: c.Failures + d.Failures, Requests: c.Requests + d.Requests}
}

// Record is what is known of one endpoint.
type Record struct {
	Count
	InARow int           // failures since the last answer
	Age    time.Duration // of the last request
}

// Recent reports whether the endpoint has had a request within Memory.
func (r Record) Recent() bool { return r.Requests > 0 && r.Age < Memory }

// Limits are what an endpoint may have while the others are healthy.
type Limits struct {
	InARow int     // failures in a row
	Share  float64 // of failures among all requests
}

// Exceeded reports whether an endpoint with this record might be evicted. If so, it is worth
// the time to sum up the others.
func (l Limits) Exceeded(r Record) bool { return r.InARow > l.InARow || l.surely(r.Count) }

// surely reports whether a failure share exceeds the limit with statistical certainty.
func (l Limits) surely(c Count) bool {
	return c.Requests >= Enough && lowerBound(c, sure) > l.Share
}

// Others sums up the endpoints that one is compared with.
type Others struct {
	Count
	recent, failing int // endpoints with recent requests; those whose last request failed

	// Spare is how many more of those that look broken themselves are left out: as many as may
	// be evicted in addition. Otherwise several broken endpoints would excuse each other.
	Spare int
	// Elsewhere is the failure share to expect of other endpoints that could take the requests,
	// Nowhere if there are none. Together is the failure share of the endpoints that are compared and
	// the one itself. A fault of all would show elsewhere, too.
	Elsewhere, Together float64
}

// Add adds an endpoint. It looks broken by two failures in a row or by its share.
func (o *Others) Add(r Record, l Limits) {
	if o.Spare > 0 && (r.InARow > 1 || l.surely(r.Count)) {
		o.Spare--
		return
	}
	o.Count = o.Plus(r.Count)
	if r.Recent() {
		o.recent++
		if r.InARow > 0 {
			o.failing++
		}
	}
}

// healthy reports whether the others fail less than the limit. The share of recent requests
// alone would notice too late that all endpoints begin to fail, so the last requests count as
// well. Without any request the others count as healthy.
func (o Others) healthy(limit float64) bool {
	return o.Failures < limit*max(o.Requests, 1) && float64(o.failing) < limit*float64(max(o.recent, 1))
}

// exceededBy reports whether a failure share surely exceeds that of the others, by more than
// the limit. Of others with few requests nothing is sure.
func (o Others) exceededBy(c Count, limit float64) bool {
	return o.Requests >= Enough && excess(c, o.Count, sure) > limit
}

// Cause is why an endpoint is evicted, as a label for metrics.
type Cause string

// The causes.
const (
	FailuresInARow Cause = "consecutive_failures"
	ErrorRate      Cause = "error_rate"
)

// Verdict returns why an endpoint that has just failed should be evicted, as a cause and as a
// text for operators, or two empty strings.
//
// Failures in a row count only while the others are healthy: at a 10 % background failure rate
// healthy endpoints have four in a row by chance. The failure share must exceed that of the
// others by more than the limit with statistical certainty, because the plain share of a few
// dozen requests exceeds 5 % by chance too often. So a fault that all endpoints share evicts
// none, and a third that fails is evicted however much that raises the mean.
//
// Failures in a row also count while the requests can go elsewhere, where the failure share is
// below the limit, or less than a third of that of these endpoints together. The failure share
// then needs to exceed only the limit, and three times the share elsewhere if that exceeds the
// limit, too.
func (l Limits) Verdict(r Record, o Others) (cause Cause, reason string) {
	if r.InARow > l.InARow && (o.healthy(l.Share) || o.Elsewhere < l.Share || o.Together > 3*o.Elsewhere) {
		return FailuresInARow, fmt.Sprintf("%d consecutive failures", r.InARow)
	}
	if l.surely(r.Count) && (o.exceededBy(r.Count, l.Share) || o.Elsewhere <= l.Share || r.share() >= 3*o.Elsewhere) {
		return ErrorRate, fmt.Sprintf("%.0f%% of %.0f recent requests failed, surely more than %.3g%%", 100*r.share(), r.Requests, 100*l.Share)
	}
	return "", ""
}

// Backoff makes evictions in a row longer. The zero value has had none.
type Backoff struct{ evictions int }

// Next returns how long the next eviction lasts: min(longest, 2^k s)·U(0.5, 1) for the k-th in
// a row, k from 1, where random is from [0, 1) and gives U. The row ends when the endpoint was
// well for more than the longest time.
func (b *Backoff) Next(well, longest time.Duration, random float64) time.Duration {
	if well > longest {
		b.evictions = 0
	}
	b.evictions++
	if b.evictions < 16 { // 2^16 s are 18 hours, and a shift must not overflow
		longest = min(longest, time.Second<<b.evictions)
	}
	return time.Duration(float64(longest) * (0.5 + 0.5*random))
}
