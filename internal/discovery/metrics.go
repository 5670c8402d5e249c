package discovery

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// The values of the labels. No label contains a name or data of a peer.
const (
	resultSuccess  = "success"
	resultTimeout  = "timeout"
	resultError    = "error"
	resultNegative = "negative_cached"

	hitPositive = "positive"
	hitNegative = "negative"
	hitStale    = "stale"

	dropCIDR     = "cidr"
	dropPrivate  = "private"
	dropFlux     = "flux"
	dropUnusable = "unusable"
)

type resolverMetrics struct {
	lookups  *prometheus.CounterVec
	hits     *prometheus.CounterVec
	duration prometheus.Histogram
	dropped  *prometheus.CounterVec
	changes  prometheus.Counter
}

func newResolverMetrics(reg prometheus.Registerer) *resolverMetrics {
	f := promauto.With(reg)
	m := &resolverMetrics{
		lookups: f.NewCounterVec(prometheus.CounterOpts{
			Name: "ringway_discovery_dns_lookups_total", Help: "Lookups that the cache could not answer with a good answer, by result; negative_cached made no query.",
		}, []string{"result"}),
		hits: f.NewCounterVec(prometheus.CounterOpts{
			Name: "ringway_discovery_dns_cache_hits_total", Help: "Lookups answered from the cache: a good answer, a remembered failure, or an old answer because a new one failed.",
		}, []string{"type"}),
		duration: f.NewHistogram(prometheus.HistogramOpts{
			Name: "ringway_discovery_dns_resolution_duration_seconds", Help: "Time of lookups that the cache could not answer.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2, 5, 10},
		}),
		dropped: f.NewCounterVec(prometheus.CounterOpts{
			Name: "ringway_discovery_dropped_addresses_total", Help: "Addresses in answers that were not used: outside the allowed CIDRs, private for a public name, in an answer that changed too often, or no address of a host.",
		}, []string{"reason"}),
		changes: f.NewCounter(prometheus.CounterOpts{
			Name: "ringway_discovery_dns_answer_changes_total", Help: "Times a name's whole set of addresses differed from its last one.",
		}),
	}
	for _, r := range []string{resultSuccess, resultTimeout, resultError, resultNegative} {
		m.lookups.WithLabelValues(r)
	}
	for _, t := range []string{hitPositive, hitNegative, hitStale} {
		m.hits.WithLabelValues(t)
	}
	for _, r := range []string{dropCIDR, dropPrivate, dropFlux, dropUnusable} {
		m.dropped.WithLabelValues(r)
	}
	return m
}

func newSeedsGauge(reg prometheus.Registerer) prometheus.Gauge {
	return promauto.With(reg).NewGauge(prometheus.GaugeOpts{
		Name: "ringway_discovery_seeds", Help: "Addresses at which other members are looked for.",
	})
}
