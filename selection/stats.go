package selection

import (
	"time"
)

// EndpointStats describes one endpoint for people and the admin API.
type EndpointStats struct {
	ID     string
	Weight float64
	// State is "active", "evicted" or "half_open".
	State string
	// Latency is the estimate from successes, 0 before the first.
	Latency time.Duration
	// InFlight is this relay's own outstanding requests.
	InFlight int
	// Reported is the last in-flight count the endpoint sent, valid only if
	// HasReport.
	Reported  float64
	HasReport bool
	// SuccessAverage is s' of the score, 0 to 1.
	SuccessAverage float64
	// ErrorRate is the share of failures among recent requests (counts that
	// decay over 10 s), 0 to 1.
	ErrorRate float64
	// Picks and Failures count since the endpoint joined the range.
	Picks    uint64
	Failures uint64
	// ConsecutiveFailures counts since the last success.
	ConsecutiveFailures int
	// LastReason is why the endpoint was last evicted, "" if never.
	LastReason string
	// Score is the cost of the next request; lower is better.
	Score float64
}

// Stats describes the range in the order of the last Update. It allocates and
// takes the mutex: not for the path of a request.
func (b *Balancer) Stats(now Instant) []EndpointStats {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.table.Load()
	v := b.view(now)
	stats := make([]EndpointStats, len(t.entries))
	for i := range t.entries {
		e := &t.entries[i]
		s := e.state
		latency, _ := unpack(s.latency.Load())
		st := EndpointStats{
			ID:                  e.ID,
			Weight:              e.Weight,
			State:               phase(s.phase.Load()).String(),
			Latency:             time.Duration(latency),
			InFlight:            int(s.outstanding()),
			HasReport:           s.reported.Load() == ownReport,
			SuccessAverage:      1,
			Picks:               s.picks.Load(),
			Failures:            s.failures.Load(),
			ConsecutiveFailures: int(s.consecutive.Load()),
			LastReason:          e.member.reason,
			Score:               float64(s.score(&v)),
		}
		if st.HasReport {
			last, _ := unpackPair(s.report.Load())
			st.Reported = float64(last)
		}
		if word := s.success.Load(); word != 0 {
			st.SuccessAverage = float64(relaxedSuccess(word, v.tick))
		}
		if failures, requests := s.decayedCounts(v.tick); requests > 0 {
			st.ErrorRate = float64(failures / requests)
		}
		stats[i] = st
	}
	return stats
}

// String returns the name used in the admin API.
func (p phase) String() string {
	switch p {
	case evicted:
		return "evicted"
	case halfOpen:
		return "half_open"
	default:
		return "active"
	}
}
