package clienttls

import (
	"crypto/tls"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/metric"
)

// The results of reading changed files.
const (
	resultReplaced = "replaced"
	resultFailed   = "failed"
)

// metrics holds every metric of the package. No label contains data of a client.
type metrics struct {
	handshakes *prometheus.CounterVec
	reloads    *prometheus.CounterVec
	refused    prometheus.Gauge
	ended      prometheus.Counter
}

func newMetrics(cfg Config, current *atomic.Pointer[material]) *metrics {
	f := metric.With(cfg.Registerer)
	m := &metrics{
		handshakes: f.CounterVec("ringway_relay_ingress_handshakes_total", "TLS handshakes with clients that succeeded, by version of TLS.", "version"),
		reloads:    f.CounterVec("ringway_relay_ingress_certificate_reloads_total", "Changes of the certificates of the ingress and of the authorities of its clients, by result: replaced, or failed, when the old ones stayed in use. One broken state counts once.", "result"),
		refused:    f.Gauge("ringway_relay_ingress_certificates_refused", "Files of the ingress on disk that cannot be used, so that the old ones stay in use: pairs of certificate and key, and authorities of clients."),
		ended:      f.Counter("ringway_relay_ingress_connections_expired_total", "Connections of clients that were closed because the client's certificate ended, or is refused since."),
	}
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		m.handshakes.WithLabelValues(tls.VersionName(version))
	}
	metric.StartAtZero(m.reloads, resultReplaced, resultFailed)
	expiry := func(kind string, end func() time.Time) {
		f.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "ringway_relay_ingress_certificate_expiry_timestamp_seconds", Help: "End of validity, by kind: leaf (the certificate of the ingress that expires first) or client_authority (the authority of clients that expires last; of several files, that of the first to expire).",
			ConstLabels: prometheus.Labels{"kind": kind},
		}, func() float64 { return float64(end().Unix()) })
	}
	expiry("leaf", func() time.Time { return current.Load().firstEnd })
	if !current.Load().authsEnd.IsZero() {
		expiry("client_authority", func() time.Time { return current.Load().authsEnd })
	}
	return m
}
