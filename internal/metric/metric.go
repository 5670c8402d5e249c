// Package metric declares the metrics of Prometheus on one line each.
package metric

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Factory creates and registers metrics. Those with more than a name, a help text and labels
// come from the factory within.
type Factory struct{ promauto.Factory }

// With returns a factory that registers with reg, or panics; nil registers nowhere.
func With(reg prometheus.Registerer) Factory { return Factory{promauto.With(reg)} }

// Counter returns a counter without labels.
func (f Factory) Counter(name, help string) prometheus.Counter {
	return f.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

// CounterVec returns counters by labels.
func (f Factory) CounterVec(name, help string, labels ...string) *prometheus.CounterVec {
	return f.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

// Gauge returns a gauge without labels.
func (f Factory) Gauge(name, help string) prometheus.Gauge {
	return f.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
}

// GaugeVec returns gauges by labels.
func (f Factory) GaugeVec(name, help string, labels ...string) *prometheus.GaugeVec {
	return f.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}

// GaugeFunc returns a gauge whose value each scrape gets from value.
func (f Factory) GaugeFunc(name, help string, value func() float64) prometheus.GaugeFunc {
	return f.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
}

// Histogram returns a histogram without labels.
func (f Factory) Histogram(name, help string, buckets []float64) prometheus.Histogram {
	return f.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
}

// StartAtZero creates the series of a counter with one label, because rate() misses the first
// event of a series that begins with 1.
func StartAtZero[S ~string](c *prometheus.CounterVec, values ...S) {
	for _, value := range values {
		c.WithLabelValues(string(value))
	}
}

// Checked is a registerer that keeps the first error, where a factory would panic. Metrics that
// are created after an error are not registered.
type Checked struct {
	prometheus.Registerer // nil registers nowhere
	Err                   error
}

// MustRegister registers until the first error.
func (c *Checked) MustRegister(metrics ...prometheus.Collector) {
	for _, m := range metrics {
		if c.Registerer != nil && c.Err == nil {
			c.Err = c.Register(m)
		}
	}
}
