package wilson

import "math"

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
