package health

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/metric"
)

// Metrics are shared by all checkers of a process. Service names come from the
// configuration, which limits their number; results are constants.
type Metrics struct {
	checks    *prometheus.CounterVec
	durations prometheus.Histogram
	healthy   *prometheus.GaugeVec
}

// NewMetrics creates and registers the metrics; with a nil Registerer they are not
// registered.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	f := metric.With(reg)
	return &Metrics{
		checks:    f.CounterVec("ringway_worker_health_checks_total", "Probes of the services of this worker, by result: success, refused, unresolved, timeout, untrusted (TLS: another certificate than expected), not_h2 (no TLS, or without HTTP/2), exhausted (this process lacks descriptors, ports or memory: no verdict), closed, garbage (another protocol), status (an answer that is no success), not_serving, unknown_service, no_health_service, other.", "service", "result"),
		durations: f.Histogram("ringway_worker_health_check_duration_seconds", "Time of a probe, from opening its connection to closing it.", []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}),
		healthy:   f.GaugeVec("ringway_worker_service_healthy", "1 while a service is healthy and therefore offered, 0 while it is not.", "service"),
	}
}

// Forget removes the series of a service that is no longer checked. Call it after
// Checker.Run of the service has returned: Run would create the series again.
func (m *Metrics) Forget(service string) {
	m.checks.DeletePartialMatch(prometheus.Labels{"service": service})
	m.healthy.DeleteLabelValues(service)
}

func (m *Metrics) probed(service string, err error, took time.Duration) {
	m.checks.WithLabelValues(service, resultOf(err)).Inc()
	m.durations.Observe(took.Seconds())
}

func (m *Metrics) setHealthy(service string, healthy bool) {
	value := 0.0
	if healthy {
		value = 1
	}
	m.healthy.WithLabelValues(service).Set(value)
}
