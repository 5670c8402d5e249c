package client

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct{ retries, refused *prometheus.CounterVec }

// Why a request was sent again, and why it was not.
const (
	retryUnsent = "unsent"
	retryFailed = "failed"

	refusedUnsafe   = "unsafe"
	refusedAttempts = "attempts"
	refusedBudget   = "budget"
)

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ringway_client_retries_total", Help: "Requests sent to another relay, by reason: unsent (the first one got nothing of it), failed (it did not answer).",
		}, []string{"reason"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ringway_client_retries_refused_total", Help: "Requests that failed and were not sent again, by reason: unsafe (the method may not be repeated, or the body not be read again), attempts (enough of them), budget (too many retries lately).",
		}, []string{"reason"}),
	}
	for _, reason := range []string{retryUnsent, retryFailed} {
		m.retries.WithLabelValues(reason)
	}
	for _, reason := range []string{refusedUnsafe, refusedAttempts, refusedBudget} {
		m.refused.WithLabelValues(reason)
	}
	return m, errors.Join(r.Register(m.retries), r.Register(m.refused))
}
