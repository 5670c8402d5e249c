package outlier

import (
	"math"
	"time"
)

const (
	// Sure is the z, in standard deviations, at which chance alone exceeds the bound
	// once in 30,000 judgements. An endpoint is judged at every failure: with z = 2.58,
	// once in 200, healthy endpoints were evicted when 1 % of all requests failed.
	Sure = 4
	// Enough is the least number of requests for a judgement. With fewer, a single
	// failure would decide.
	Enough = 20
)

// LowerBound returns the lower end of Wilson's score interval at z (1927, "Probable
// inference, the law of succession, and statistical inference"): at this confidence the
// failure share is at least the result. requests must be positive.
func LowerBound(failures, requests, z float64) float64 {
	p := failures / requests
	centre := p + z*z/(2*requests)
	spread := z * math.Sqrt(p*(1-p)/requests+z*z/(4*requests*requests))
	return (centre - spread) / (1 + z*z/requests)
}

// Count is a number of requests and of those that failed.
type Count struct{ Failures, Requests float64 }

func (c Count) share() float64 { return c.Failures / c.Requests }

// Excess returns by how much the failure share of one surely exceeds that of others, at z:
// the lower end of Newcombe's interval for the difference of two shares (1998, "Interval
// estimation for the difference between independent proportions", method 10). Requests must
// be positive.
func Excess(one, others Count, z float64) float64 {
	below := one.share() - LowerBound(one.Failures, one.Requests, z)
	above := 1 - LowerBound(others.Requests-others.Failures, others.Requests, z) - others.share()
	return one.share() - others.share() - math.Hypot(below, above)
}

// Eviction returns how long the k-th consecutive eviction lasts, k from 1:
// min(longest, 2^k s)·U(0.5, 1), where random is the U of [0, 1) behind it.
func Eviction(k int, longest time.Duration, random float64) time.Duration {
	if k < 16 { // 2^16 s are 18 hours, and a shift must not overflow
		longest = min(longest, time.Second<<k)
	}
	return time.Duration(float64(longest) * (0.5 + 0.5*random))
}
