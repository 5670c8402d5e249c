package circuit

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Config holds the settings of [Breakers]. Start from [DefaultConfig].
type Config struct {
	// Period is the time over which failures are counted, how long a circuit stays
	// open, and the time between two probes. More than 0, default 1 s.
	Period time.Duration
	// FailureShare is the share of failures above which a circuit opens. At least 0,
	// less than 1, default 0.5.
	FailureShare float64
	// MinRequests is the number of requests that a period must exceed before a circuit
	// can open. 0 or more, default 5.
	MinRequests int
	// Probes is how many probes in a row must succeed to close a circuit. At least
	// 1, default 5.
	Probes int
	// MaxCircuits is how many circuits are kept in memory. At least 1, default 10,000,
	// about 10 MB.
	MaxCircuits int
	// Exempt are services without circuits. Services that the fleet itself depends on,
	// such as its own advertisements, must be exempt.
	Exempt []string
	// ReportOnly counts the requests that circuits would refuse, and allows them.
	ReportOnly bool
	// Registerer receives the metrics. Default nil: no metrics.
	Registerer prometheus.Registerer
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	return Config{Period: time.Second, FailureShare: 0.5, MinRequests: 5, Probes: 5, MaxCircuits: 10_000}
}

// validate reports all invalid settings together, sorted by name, or nil.
func (c Config) validate() error {
	var bad []error
	check := func(ok bool, name string, value any, allowed string) {
		if !ok {
			bad = append(bad, fmt.Errorf("circuit: %s is %v, allowed is %s", name, value, allowed))
		}
	}
	check(c.Period > 0, "Period", c.Period, "more than 0")
	check(c.FailureShare >= 0 && c.FailureShare < 1, "FailureShare", c.FailureShare, "0 or more, less than 1")
	check(c.MinRequests >= 0, "MinRequests", c.MinRequests, "0 or more")
	check(c.Probes >= 1 && c.Probes <= 1000, "Probes", c.Probes, "1 to 1000")
	check(c.MaxCircuits >= 1, "MaxCircuits", c.MaxCircuits, "1 or more")
	slices.SortFunc(bad, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(bad...)
}

// NotHealthyError is returned for a request that a circuit refuses.
type NotHealthyError struct {
	// Endpoint is empty for the circuit of a whole service.
	Caller, Service, Endpoint string
	// RetryAfter is the time until the next probe is allowed; 0 while one is in flight.
	RetryAfter time.Duration
}

func (e *NotHealthyError) Error() string {
	when := "while a probe is in flight"
	if e.RetryAfter > 0 {
		when = fmt.Sprintf("the next probe in %v", e.RetryAfter.Round(time.Millisecond))
	}
	if e.Endpoint == "" {
		return fmt.Sprintf("circuit: service is not healthy: %q failed too often for caller %q, %s: try again later", e.Service, e.Caller, when)
	}
	return fmt.Sprintf("circuit: service is not healthy: %q at %s failed too often for caller %q, %s: use another endpoint, or try again later",
		e.Service, e.Endpoint, e.Caller, when)
}
