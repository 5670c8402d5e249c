package wilson

import "math"

const (
	// Sure is the z, in standard deviations, at which chance alone exceeds the
	// bound once in 30,000 judgements. An endpoint is judged with every failure:
	// at 2.58, once in 200, healthy ones were evicted by 1 % of failures
	// everywhere.
	Sure = 4
	// Enough is the least number of requests to judge by. Below it one failure
	// more or less decides.
	Enough = 20
)

// LowerBound is the lower end of Wilson's score interval at z (1927, "Probable
// inference, the law of succession, and statistical inference"): the share of
// failures, of requests > 0, is surely at least this.
func LowerBound(failures, requests, z float64) float64 {
	p := failures / requests
	centre := p + z*z/(2*requests)
	spread := z * math.Sqrt(p*(1-p)/requests+z*z/(4*requests*requests))
	return (centre - spread) / (1 + z*z/requests)
}
