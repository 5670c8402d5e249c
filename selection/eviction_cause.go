package selection

// EvictionCause is why an endpoint was evicted, for metrics: the set is closed.
type EvictionCause string

// The causes.
const (
	// ForFailuresInARow is more than ConsecutiveFailures of them.
	ForFailuresInARow EvictionCause = "consecutive_failures"
	// ForErrorRate is a failure share that is surely above ErrorRateThreshold.
	ForErrorRate EvictionCause = "error_rate"
	// ForLatency is an estimate that surely and lastingly exceeds its tier's.
	ForLatency EvictionCause = "latency"
	// ForFailingAgain is the failure of the request that tried an evicted endpoint.
	ForFailingAgain EvictionCause = "half_open"
)

// EvictionCauses lists all of them.
func EvictionCauses() []EvictionCause {
	return []EvictionCause{ForFailuresInARow, ForErrorRate, ForLatency, ForFailingAgain}
}
