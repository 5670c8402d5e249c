package strategy

import (
	"errors"
	"fmt"
)

// Why nothing was picked, or why a strategy cannot be. Every error of Pick wraps
// exactly one of them; all but ErrNotConfigured may be gone at the next try.
var (
	// ErrNoEndpoints: the range is empty, or has none of the endpoints that manual
	// may use.
	ErrNoEndpoints = errors.New("no available endpoints")
	// ErrAllExcluded: there are endpoints, and the request excludes each that the
	// strategy may use.
	ErrAllExcluded = errors.New("no available endpoints after considering exclusions")
	// ErrNoMeasurement: closest and farthest have not reached any of the endpoints
	// that are left, or not yet.
	ErrNoMeasurement = errors.New("no available endpoints with latency measurements")
	// ErrAllStale: slots met only endpoints that were not seen lately.
	ErrAllStale = errors.New("no available endpoints that are fresh")
	// ErrNotConfigured: the strategy needs a setting that it does not have.
	ErrNotConfigured = errors.New("strategy is not configured")
)

// The errors of Pick, made once so that a pick that fails does not allocate.
var (
	errNoEndpoints = fmt.Errorf("selection: %w: wait for workers to advertise the service", ErrNoEndpoints)
	errAllExcluded = fmt.Errorf("selection: %w: this request has tried them all; return its last error", ErrAllExcluded)
	errUnmeasured  = fmt.Errorf("selection: %w: none that is left could be connected to yet; try again, or check that this relay can reach them", ErrNoMeasurement)
	errAllStale    = fmt.Errorf("selection: %w: no endpoint of the highest version was seen lately; try again later", ErrAllStale)
	errScanBudget  = fmt.Errorf("selection: %w: the scan met maxscan stale endpoints first; try again, or raise maxscan", ErrAllStale)
)
