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

// Eviction returns how long the k-th consecutive eviction lasts, k from 1:
// min(longest, 2^k s)·U(0.5, 1), where random is the U of [0, 1) behind it.
func Eviction(k int, longest time.Duration, random float64) time.Duration {
	if k < 16 { // 2^16 s are 18 hours, and a shift must not overflow
		longest = min(longest, time.Second<<k)
	}
	return time.Duration(float64(longest) * (0.5 + 0.5*random))
}
