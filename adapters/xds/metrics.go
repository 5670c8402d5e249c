package xds

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/handshake"
	"github.com/ringway/ringway/internal/metric"
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
	of := metric.With(to)
	m := &metrics{
		clients:     of.Gauge("ringway_xds_clients", "Clients with an open stream."),
		absent:      of.Gauge("ringway_xds_clients_absent", "Clients without a stream that keep their places in the plans."),
		streams:     of.Gauge("ringway_xds_streams", "Open streams of clients."),
		nacks:       of.Counter("ringway_xds_nacks_total", "Responses that a client has refused."),
		updates:     of.Counter("ringway_xds_updates_total", "Changes of the endpoints of one service for one client."),
		refused:     of.CounterVec("ringway_xds_refused_total", "Refused streams, by reason: node (no valid node id or locality), identity (not that of the certificate), unlisted (not in the fixed list), clients, streams, services (a limit), service_name (a resource name that is none), type (not EDS).", "reason"),
		connections: of.CounterVec("ringway_xds_connections_refused_total", "Connections refused because of their certificate, by reason, as ringway_sidecar_refused_total, or because it has 16 connections (too_many_of_certificate).", "reason"),
		plans:       of.CounterVec("ringway_xds_plans_total", "Plans of services: ok, or failed (the previous endpoints stay).", "result"),
		leftOut:     of.GaugeVec("ringway_xds_endpoints_left_out", "Endpoints in the range of at least one client that are not sent, by reason: host_name (no IP address), unsecured (no mutual TLS in a fleet with certificates), protocol (TCP sessions where most workers take HTTP, or the reverse), address_twice (another worker has the same address).", "reason"),
	}
	metric.StartAtZero(m.refused, refusedReasons...)
	metric.StartAtZero(m.connections, handshake.ListenerReasons()...)
	metric.StartAtZero(m.plans, planOK, planFailed)
	for _, reason := range leftOutReasons {
		m.leftOut.WithLabelValues(reason)
	}
	return m
}
