package identity

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/metric"
)

// metrics holds every metric of the package. No label contains data of a peer.
type metrics struct {
	refusals    *prometheus.CounterVec
	reloads     *prometheus.CounterVec
	denyReloads *prometheus.CounterVec
	closed      *prometheus.CounterVec
}

const (
	resultReplaced = "replaced"
	resultFailed   = "failed"
)

// newMetrics registers with reg; nil registers nowhere. notAfter and authority return the
// ends of the certificate in use and of the authority that it depends on, in Unix seconds;
// denied returns the length of the deny list, and problems why files are not in use.
func newMetrics(reg prometheus.Registerer, notAfter, authority, denied func() float64, problems map[string]func() error) *metrics {
	f := metric.With(reg)
	for files, problem := range problems {
		f.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "ringway_identity_files_refused", Help: "1 while files on disk cannot be used and the old ones stay in use, by files: certificate or deny_list.",
			ConstLabels: prometheus.Labels{"files": files},
		}, func() float64 {
			if problem() != nil {
				return 1
			}
			return 0
		})
	}
	m := &metrics{
		refusals:    f.CounterVec("ringway_identity_refusals_total", "TLS handshakes that this process refused, by direction and reason.", "direction", "reason"),
		reloads:     f.CounterVec("ringway_identity_reloads_total", "Changes of the certificate files, by result: replaced, or failed, when the old ones stayed in use. One broken state counts once.", "result"),
		denyReloads: f.CounterVec("ringway_identity_deny_list_reloads_total", "Changes of the deny list, by result: replaced, or failed, when the old one stayed in use. One broken state counts once.", "result"),
		closed:      f.CounterVec("ringway_identity_connections_closed_total", "Open TLS connections that were closed because the other end's certificate is no longer valid, by direction and reason.", "direction", "reason"),
	}
	f.GaugeFunc("ringway_identity_denied_entries", "Entries of the deny list in use: serial numbers and nodes.", denied)
	f.GaugeFunc("ringway_identity_certificate_not_after_timestamp_seconds", "End of validity of the certificate in use.", notAfter)
	for kind, end := range map[string]func() float64{"leaf": notAfter, "authority": authority} {
		f.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "ringway_certificate_expiry_timestamp_seconds", Help: "End of validity, by kind: leaf (the certificate in use) or authority (the certificate above it that expires first).",
			ConstLabels: prometheus.Labels{"kind": kind},
		}, end)
	}
	for _, direction := range []direction{inbound, outbound} {
		for _, reason := range reasons {
			m.refusals.WithLabelValues(string(direction), string(reason))
		}
		for _, reason := range []Reason{reasonDenied, reasonExpired, reasonUnknownAuthority} {
			m.closed.WithLabelValues(string(direction), string(reason))
		}
	}
	metric.StartAtZero(m.reloads, resultReplaced, resultFailed)
	metric.StartAtZero(m.denyReloads, resultReplaced, resultFailed)
	return m
}
