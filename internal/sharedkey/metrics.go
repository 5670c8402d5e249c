package sharedkey

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
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
	f := promauto.With(reg)
	m := &metrics{
		source: f.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ringway_shared_key_source", Help: "1 for the source of the key in use, 0 for the others; all 0 while there is no key. fallback means that no relay gave one.",
		}, []string{"source"}),
		attempts: f.NewCounter(prometheus.CounterOpts{
			Name: "ringway_shared_key_attempts_total", Help: "Attempts to get the key from other relays while this one had none.",
		}),
		fetches: f.NewCounterVec(prometheus.CounterOpts{
			Name: "ringway_shared_key_fetches_total", Help: "Relays asked for the key, by result.",
		}, []string{"result"}),
		answers: f.NewCounterVec(prometheus.CounterOpts{
			Name: "ringway_shared_key_answers_total", Help: "Askers answered with the key, with none yet, or refused.",
		}, []string{"result"}),
		forks: f.NewCounter(prometheus.CounterOpts{
			Name: "ringway_shared_key_forks_total", Help: "Keys received from other relays that were neither this relay's nor known to it.",
		}),
	}
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ringway_shared_key_age_seconds", Help: "Time since this relay began to use its current key; 0 while it has none.",
	}, age)
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ringway_shared_key_retired", Help: "Keys accepted for verification only.",
	}, retired)
	for _, s := range sources {
		m.source.WithLabelValues(string(s)).Set(0)
	}
	for _, r := range fetchResults {
		m.fetches.WithLabelValues(r)
	}
	for _, r := range []string{answeredKey, answeredNone, answeredRefused} {
		m.answers.WithLabelValues(r)
	}
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
