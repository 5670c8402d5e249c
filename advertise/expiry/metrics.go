package expiry

import "github.com/prometheus/client_golang/prometheus"

// metrics are this package's own. The label values are the names of the results
// and outcomes, resolved once; no key becomes one.
type metrics struct {
	collectors   []prometheus.Collector
	observations [len(resultNames)]prometheus.Counter
	outcomes     [len(outcomeNames)]prometheus.Counter
	running      prometheus.Gauge
	duration     prometheus.Histogram
}

func newMetrics(waiting func() float64) *metrics {
	observations := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ringway_expiry_observations_total", Help: "Stale entries met, by result: queued, deduped (known already), rejected_capacity (too many waiting).",
	}, []string{"result"})
	outcomes := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ringway_expiry_outcomes_total", Help: "Stale entries looked at again, by outcome: expired (removed), fresh (alive after all), already (removed by somebody else), error.",
	}, []string{"outcome"})
	pending := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ringway_expiry_pending", Help: "Stale entries waiting to be looked at.",
	}, waiting)
	m := &metrics{
		running: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "ringway_expiry_running", Help: "Stale entries being looked at.",
		}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "ringway_expiry_duration_seconds", Help: "Time from an observation to its outcome, waiting included.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 10, 7), // 100 µs to 100 s
		}),
	}
	m.collectors = []prometheus.Collector{observations, outcomes, pending, m.running, m.duration}
	for i, name := range resultNames {
		m.observations[i] = observations.WithLabelValues(name)
	}
	for i, name := range outcomeNames {
		m.outcomes[i] = outcomes.WithLabelValues(name)
	}
	return m
}

func (m *metrics) register(r prometheus.Registerer) error {
	if r == nil {
		return nil
	}
	for _, c := range m.collectors {
		if err := r.Register(c); err != nil {
			return err
		}
	}
	return nil
}
