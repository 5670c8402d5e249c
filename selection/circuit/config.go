package circuit

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Config is how circuits open and close. Start from [DefaultConfig].
type Config struct {
	// Period is the time over which failures are counted, how long a circuit stays
	// open, and the time between two probes. More than 0, default 1 s.
	Period time.Duration
	// FailureShare is the share of failures that opens a circuit when it is
	// exceeded. At least 0, less than 1, default 0.5.
	FailureShare float64
	// MinRequests is how many requests a period must exceed to be judged. 0 or
	// more, default 5.
	MinRequests int
	// Probes is how many probes in a row must succeed to close a circuit. At least
	// 1, default 5.
	Probes int
	// MaxCircuits is how many circuits are remembered. At least 1, default 10,000,
	// some 10 MB.
	MaxCircuits int
	// Exempt are services without circuits: what keeps the fleet itself going, such
	// as its own advertisements, must not be cut off by it.
	Exempt []string
	// ReportOnly counts what would have been refused, and lets it pass.
	ReportOnly bool
	// Registerer takes the metrics. Default nil: none.
	Registerer prometheus.Registerer
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	return Config{Period: time.Second, FailureShare: 0.5, MinRequests: 5, Probes: 5, MaxCircuits: 10_000}
}

// Validate reports every invalid setting at once, sorted by name, or nil.
func (c Config) Validate() error {
	var bad []string
	check := func(ok bool, name string, value any, allowed string) {
		if !ok {
			bad = append(bad, fmt.Sprintf("circuit: %s is %v, allowed is %s", name, value, allowed))
		}
	}
	check(c.Period > 0, "Period", c.Period, "more than 0")
	check(c.FailureShare >= 0 && c.FailureShare < 1, "FailureShare", c.FailureShare, "0 or more, less than 1")
	check(c.MinRequests >= 0, "MinRequests", c.MinRequests, "0 or more")
	check(c.Probes >= 1 && c.Probes <= 1000, "Probes", c.Probes, "1 to 1000")
	check(c.MaxCircuits >= 1, "MaxCircuits", c.MaxCircuits, "1 or more")
	slices.Sort(bad)
	errs := make([]error, len(bad))
	for i, text := range bad {
		errs[i] = errors.New(text)
	}
	return errors.Join(errs...)
}
