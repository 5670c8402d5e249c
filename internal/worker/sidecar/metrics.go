package sidecar

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics shows the services that are there now: one that is taken away loses
// its series by itself.
type metrics struct {
	services           func() map[string]*service
	refused            *prometheus.CounterVec
	requests, inFlight *prometheus.Desc
}

func newMetrics(reg prometheus.Registerer, services func() map[string]*service) *metrics {
	m := &metrics{
		services: services,
		refused: promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
			Name: "ringway_sidecar_refused_total", Help: "Connections refused by the sidecar, by reason: that of the certificate, handshake (no or broken TLS), timeout or too_many; and requests for an unknown_service.",
		}, []string{"reason"}),
		requests: prometheus.NewDesc("ringway_sidecar_requests_total",
			"Requests by service and result: the class of the status, or unsent (the service could not be reached), sent (it gave no answer), aborted (its answer broke off), cancelled (the relay broke off), rejected (cannot be carried).",
			[]string{"service", "result"}, nil),
		inFlight: prometheus.NewDesc("ringway_sidecar_in_flight", "Requests and tunnels in flight, by service.", []string{"service"}, nil),
	}
	reg.MustRegister(m)
	return m
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- m.requests
	ch <- m.inFlight
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for name, s := range m.services() {
		ch <- prometheus.MustNewConstMetric(m.inFlight, prometheus.GaugeValue, float64(s.inFlight.Load()), name)
		for i, result := range results {
			ch <- prometheus.MustNewConstMetric(m.requests, prometheus.CounterValue, float64(s.results[i].Load()), name, result)
		}
	}
}
