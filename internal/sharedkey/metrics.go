package sharedkey

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/metric"
)

// metrics holds every metric of the package. No label contains data of a peer.
type metrics struct {
	source   *prometheus.GaugeVec
	attempts prometheus.Counter
	fetches  *prometheus.CounterVec
	answers  *prometheus.CounterVec
	forks    prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, age, retired func() float64) *metrics {
	f := metric.With(reg)
	m := &metrics{
		source:   f.GaugeVec("ringway_shared_key_source", "1 for the source of the key in use, 0 for the others; all 0 while there is no key. fallback means that no relay gave one.", "source"),
		attempts: f.Counter("ringway_shared_key_attempts_total", "Attempts to get the key from other relays while this one had none."),
		fetches:  f.CounterVec("ringway_shared_key_fetches_total", "Relays asked for the key, by result.", "result"),
		answers:  f.CounterVec("ringway_shared_key_answers_total", "Askers answered with the key, with none yet, or refused.", "result"),
		forks:    f.Counter("ringway_shared_key_forks_total", "Keys received from other relays that were neither this relay's nor known to it."),
	}
	f.GaugeFunc("ringway_shared_key_age_seconds", "Time since this relay began to use its current key; 0 while it has none.", age)
	f.GaugeFunc("ringway_shared_key_retired", "Keys accepted for verification only.", retired)
	for _, s := range sources {
		m.source.WithLabelValues(string(s)).Set(0)
	}
	metric.StartAtZero(m.fetches, fetchResults...)
	metric.StartAtZero(m.answers, answeredKey, answeredNone, answeredRefused)
	return m
}

func (m *metrics) setSource(s Source) {
	for _, other := range sources {
		m.source.WithLabelValues(string(other)).Set(0)
	}
	m.source.WithLabelValues(string(s)).Set(1)
}

var fetchResults = []string{"key", "none", "refused", "malformed", "foreign", "timeout", "unreachable"}

// fetchResult returns the metric label for the result of asking one relay.
func fetchResult(err error) string {
	switch {
	case err == nil:
		return "key"
	case errors.Is(err, ErrNoKey):
		return "none"
	case errors.Is(err, ErrRefused):
		return "refused"
	case errors.Is(err, ErrMalformed):
		return "malformed"
	case errors.Is(err, ErrForeign):
		return "foreign"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	default:
		return "unreachable"
	}
}
