package sidecar

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/metric"
	"github.com/ringway/ringway/internal/proxy/upstream"
)

// reasonUnknownService is a reason of refusals in addition to those of handshake.Listener.
const reasonUnknownService = "unknown_service"

// metrics collects the metrics of the current services: the series of a removed service
// disappear without further action.
type metrics struct {
	services           func() map[string]*service
	refused, silent    *prometheus.CounterVec
	sessionsEnded      prometheus.Counter
	requests, inFlight *prometheus.Desc
}

func newMetrics(reg prometheus.Registerer, activity *upstream.Activity, services func() map[string]*service) *metrics {
	m := &metrics{
		services:      services,
		refused:       metric.With(reg).CounterVec("ringway_sidecar_refused_total", "Connections refused by the sidecar, by reason: that of the certificate, handshake (no or broken TLS), timeout, too_many or too_many_from_source (newer ones needed the place), too_fast_from_source (its address begins more TLS handshakes per second than one address may); and requests for an unknown_service.", "reason"),
		silent:        metric.With(reg).CounterVec("ringway_sidecar_silent_requests_total", "Requests and tunnels ended because no byte moved for --progress-timeout, by the side that was silent: client (the relay, or who is behind it), endpoint (the service), or both.", "side"),
		sessionsEnded: metric.With(reg).Counter("ringway_sidecar_sessions_ended_total", "Tunnels and streams that this sidecar ended because its worker stops, over --session-drain-timeout."),
		requests: prometheus.NewDesc("ringway_sidecar_requests_total",
			"Requests by service and result: the class of the status, or unsent (the service could not be reached), sent (it gave no answer), aborted (its answer broke off), cancelled (the relay broke off, or the worker stops), rejected (cannot be carried), full (all slots were taken; nothing was sent to the service), untrusted (a service with h2 has another certificate than expected, or does not speak HTTP/2 over TLS; nothing was sent to it).",
			[]string{"service", "result"}, nil),
		inFlight: prometheus.NewDesc("ringway_sidecar_in_flight", "Requests and tunnels in flight, by service.", []string{"service"}, nil),
	}
	metric.StartAtZero(m.silent, upstream.Sides()...)
	metric.With(reg).NewCounterFunc(prometheus.CounterOpts{
		Name: "ringway_sidecar_unasked_total", Help: "HTTP/1.1 connections to services that were closed because bytes had come that belong to no request: the service sends a body where none is allowed (HEAD, 204, 304), or more than the length that it declares.",
	}, func() float64 { return float64(activity.Unasked.Load()) })
	for reason, n := range map[string]*atomic.Uint64{"abusive": &activity.Abusive, "malformed": &activity.Malformed, "stalled": &activity.Stalled} {
		metric.With(reg).NewCounterFunc(prometheus.CounterOpts{
			Name: "ringway_sidecar_service_ended_total", Help: "HTTP/2 connections to services that were closed because the service sent too much that costs and carries nothing (abusive: floods of SETTINGS, PING, WINDOW_UPDATE, CONTINUATION and the like), or what is no HTTP/2 (malformed), or because it accepted no byte for a minute (stalled).",
			ConstLabels: prometheus.Labels{"reason": reason},
		}, func() float64 { return float64(n.Load()) })
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
