package discovery

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/metric"
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
	dropMany     = "too_many"
)

type resolverMetrics struct {
	lookups  *prometheus.CounterVec
	hits     *prometheus.CounterVec
	duration prometheus.Histogram
	dropped  *prometheus.CounterVec
	changes  prometheus.Counter
}

func newResolverMetrics(reg prometheus.Registerer) *resolverMetrics {
	f := metric.With(reg)
	m := &resolverMetrics{
		lookups:  f.CounterVec("ringway_discovery_dns_lookups_total", "Lookups that the cache could not answer with a good answer, by result; negative_cached made no query.", "result"),
		hits:     f.CounterVec("ringway_discovery_dns_cache_hits_total", "Lookups answered from the cache: a good answer, a remembered failure, or an old answer because a new one failed.", "type"),
		duration: f.Histogram("ringway_discovery_dns_resolution_duration_seconds", "Time of lookups that the cache could not answer.", []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2, 5, 10}),
		dropped:  f.CounterVec("ringway_discovery_dropped_addresses_total", "Addresses in answers that were not used: outside the allowed CIDRs, private for a public name, in an answer that changed too often, no address of a host, or beyond the first 1,024 of a name.", "reason"),
		changes:  f.Counter("ringway_discovery_dns_answer_changes_total", "Times a name's whole set of addresses differed from its last one."),
	}
	metric.StartAtZero(m.lookups, resultSuccess, resultTimeout, resultError, resultNegative)
	metric.StartAtZero(m.hits, hitPositive, hitNegative, hitStale)
	metric.StartAtZero(m.dropped, dropCIDR, dropPrivate, dropFlux, dropUnusable, dropMany)
	return m
}

func newSeedsGauge(reg prometheus.Registerer) prometheus.Gauge {
	return metric.With(reg).Gauge("ringway_discovery_seeds", "Addresses at which other members are looked for.")
}
