package xds

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/ringway/ringway/internal/handshake"
)

// Reasons of ringway_xds_refused_total.
const (
	refusedNode        = "node"
	refusedIdentity    = "identity"
	refusedUnlisted    = "unlisted"
	refusedClients     = "clients"
	refusedStreams     = "streams"
	refusedServices    = "services"
	refusedServiceName = "service_name"
	refusedType        = "type"
)

var refusedReasons = []string{refusedNode, refusedIdentity, refusedUnlisted, refusedClients, refusedStreams, refusedServices, refusedServiceName, refusedType}

// Results of ringway_xds_plans_total.
const (
	planOK     = "ok"
	planFailed = "failed"
)

type metrics struct {
	clients, absent, streams    prometheus.Gauge
	refused, connections, plans *prometheus.CounterVec
	nacks, updates              prometheus.Counter
	leftOut                     *prometheus.GaugeVec
}

func newMetrics(to prometheus.Registerer) *metrics {
	of := promauto.With(to)
	gauge := func(name, help string) prometheus.Gauge {
		return of.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	counter := func(name, help string) prometheus.Counter {
		return of.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	vector := func(name, label, help string, values []string) *prometheus.CounterVec {
		v := of.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
		for _, value := range values {
			v.WithLabelValues(value)
		}
		return v
	}
	m := &metrics{
		clients:     gauge("ringway_xds_clients", "Clients with an open stream."),
		absent:      gauge("ringway_xds_clients_absent", "Clients without a stream that keep their places in the plans."),
		streams:     gauge("ringway_xds_streams", "Open streams of clients."),
		nacks:       counter("ringway_xds_nacks_total", "Responses that a client has refused."),
		updates:     counter("ringway_xds_updates_total", "Changes of the endpoints of one service for one client."),
		refused:     vector("ringway_xds_refused_total", "reason", "Refused streams, by reason: node (no valid node id or locality), identity (not that of the certificate), unlisted (not in the fixed list), clients, streams, services (a limit), service_name (a resource name that is none), type (not EDS).", refusedReasons),
		connections: vector("ringway_xds_connections_refused_total", "reason", "Connections refused because of their certificate, by reason, as ringway_sidecar_refused_total.", handshake.ListenerReasons()),
		plans:       vector("ringway_xds_plans_total", "result", "Plans of services: ok, or failed (the previous endpoints stay).", []string{planOK, planFailed}),
		leftOut: of.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ringway_xds_endpoints_left_out", Help: "Endpoints in the range of at least one client that are not sent, by reason: host_name (no IP address), unsecured (no mutual TLS in a fleet with certificates), protocol (TCP sessions where most workers take HTTP, or the reverse), address_twice (another worker has the same address).",
		}, []string{"reason"}),
	}
	for _, reason := range leftOutReasons {
		m.leftOut.WithLabelValues(reason)
	}
	return m
}
