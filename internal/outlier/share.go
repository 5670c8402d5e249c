package outlier

import "math"

// sure is the z, in standard deviations, at which chance alone exceeds the bound once in 30,000
// judgements. An endpoint is judged at every failure: with z = 2.58, once in 200, healthy
// endpoints were evicted when 1 % of all requests failed.
const sure = 4

// lowerBound returns the lower end of Wilson's score interval at z (1927, "Probable
// inference, the law of succession, and statistical inference"): at this confidence the
// failure share is at least the result. Requests must be positive.
func lowerBound(c Count, z float64) float64 {
	p := c.share()
	centre := p + z*z/(2*c.Requests)
	spread := z * math.Sqrt(p*(1-p)/c.Requests+z*z/(4*c.Requests*c.Requests))
	return (centre - spread) / (1 + z*z/c.Requests)
}

// excess returns by how much the failure share of one surely exceeds that of others, at z:
// the lower end of Newcombe's interval for the difference of two shares (1998, "Interval
// estimation for the difference between independent proportions", method 10). Requests must
// be positive.
func excess(one, others Count, z float64) float64 {
	below := one.share() - lowerBound(one, z)
	successes := Count{Failures: others.Requests - others.Failures, Requests: others.Requests}
	above := 1 - lowerBound(successes, z) - others.share()
	return one.share() - others.share() - math.Hypot(below, above)
}
