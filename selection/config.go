package selection

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Config holds the settings of a [Balancer]. Start from [DefaultConfig]: the zero value
// is not valid, because 0 redraws is a valid setting and not the default.
type Config struct {
	// Redraws is how many more pairs a pick may draw while the best endpoint
	// so far is worse than the running winner. 0 is textbook power of two
	// choices. Range 0 to 8, default 2: the first redraw brings most of the gain, a
	// third almost none.
	Redraws int

	// Alpha is the largest weight of one new latency sample in the estimate.
	// Range (0, 1], default 0.2. Samples that come faster than about one per second weigh
	// less: the estimate is then their mean, with weights that decay over 6 s. The first
	// good sample of an endpoint that was slow weighs a half.
	Alpha float64

	// InitialLatency replaces the median latency of the range until that is
	// known. Default 10 ms.
	InitialLatency time.Duration

	// SlowStart is how long an endpoint that joined or was readmitted gets less than
	// its full share. 0 turns the ramp off. Default 3 s.
	SlowStart time.Duration

	// ConsecutiveFailures is how many failures in a row an endpoint may have;
	// the next failure evicts it. At least 1, default 3 (evicted at the fourth).
	ConsecutiveFailures int

	// ErrorRateThreshold, in (0, 1), is by how much the failure share of an endpoint must
	// exceed that of the others of its tier, with statistical certainty (z = 4) and in 20
	// recent requests or more, to be evicted. If another tier with endpoints to spare fails
	// less than this, or less than a third as much, the share itself must exceed the
	// threshold. Failures in a row evict only while the others of the tier, or another
	// tier, fail less than this, or while the tier fails three times as much as another is
	// expected to fail. Of the others, as many that look broken as may be evicted too do
	// not count. Default 0.05.
	ErrorRateThreshold float64

	// LatencyFactor is how many times the median latency of its tier an endpoint's
	// estimate must exceed, with statistical certainty, for 10 s and in more than 20
	// answers, to be evicted. 0 turns it off; otherwise at least 1.5. Default 3.
	LatencyFactor float64

	// MaxEviction limits how long an endpoint stays evicted before it is tried again,
	// and for how long the request that tries it keeps others away. At least 1 s, default 30 s.
	MaxEviction time.Duration

	// EndpointRate is how many requests per second an endpoint should get to keep its
	// estimates useful. A relay that sends fewer uses only the first endpoints of its
	// range, in ring order: as many as get this rate, but no fewer than
	// [Range.MinEffective], 3, and its requests in flight. A request may go to an endpoint
	// outside the effective range while those inside have requests of the relay in
	// flight. 0 turns the effective range off: all endpoints are used. Default 1.
	// Measured in the queueing simulation: at a low steady rate the 99th percentile is
	// 4 to 6 % lower; with 100 relays, 40 workers and one request per pair in 30 s it is
	// 2.9 s instead of 23 s.
	EndpointRate float64

	// Overprovisioning is how many times its fair share a healthy endpoint may be
	// loaded before traffic goes to a farther tier: at 1.4 the nearest tier gets
	// all traffic while at least 72 % of its endpoints are healthy. At least 1, default
	// 1.4.
	Overprovisioning float64

	// OnEvict is called at each eviction with the balancer's mutex held: it must not
	// block and must not call the balancer. Default nil: no call.
	OnEvict func(EvictionCause)

	// Rand replaces the random source, so that a simulation is reproducible to the byte.
	// It must be safe for concurrent use if the balancer is used by several goroutines.
	// Default nil: math/rand/v2.
	Rand func() uint64
}

// DefaultConfig returns the measured defaults.
func DefaultConfig() Config {
	return Config{
		Redraws:             2,
		Alpha:               0.2,
		InitialLatency:      10 * time.Millisecond,
		SlowStart:           3 * time.Second,
		ConsecutiveFailures: 3,
		ErrorRateThreshold:  0.05,
		LatencyFactor:       3,
		MaxEviction:         30 * time.Second,
		EndpointRate:        1,
		Overprovisioning:    1.4,
	}
}

// Validate reports all invalid settings together, sorted by name, or nil.
func (c Config) Validate() error {
	var bad []error
	check := func(ok bool, name string, value any, allowed string) {
		if !ok {
			bad = append(bad, fmt.Errorf("selection: %s is %v, allowed is %s", name, value, allowed))
		}
	}
	check(c.Redraws >= 0 && c.Redraws <= 8, "Redraws", c.Redraws, "0 to 8")
	check(c.Alpha > 0 && c.Alpha <= 1, "Alpha", c.Alpha, "more than 0, at most 1")
	check(c.InitialLatency > 0, "InitialLatency", c.InitialLatency, "more than 0")
	check(c.SlowStart >= 0, "SlowStart", c.SlowStart, "0 (off) or more")
	check(c.ConsecutiveFailures >= 1 && c.ConsecutiveFailures <= math.MaxInt32,
		"ConsecutiveFailures", c.ConsecutiveFailures, "1 or more")
	check(c.ErrorRateThreshold > 0 && c.ErrorRateThreshold < 1,
		"ErrorRateThreshold", c.ErrorRateThreshold, "more than 0, less than 1")
	check(c.LatencyFactor == 0 || c.LatencyFactor >= 1.5 && c.LatencyFactor <= math.MaxInt32,
		"LatencyFactor", c.LatencyFactor, "0 (off), or 1.5 or more")
	check(c.MaxEviction >= time.Second, "MaxEviction", c.MaxEviction, "1s or more")
	check(c.EndpointRate >= 0 && c.EndpointRate <= math.MaxInt32,
		"EndpointRate", c.EndpointRate, "0 (off) or more")
	check(c.Overprovisioning >= 1 && c.Overprovisioning <= math.MaxInt32,
		"Overprovisioning", c.Overprovisioning, "1 or more")
	slices.SortFunc(bad, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(bad...)
}
