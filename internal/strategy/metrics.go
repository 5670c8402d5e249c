package strategy

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/metric"
)

// result is how a pick ended.
type result uint8

const (
	picked result = iota
	noEndpoints
	allExcluded
	noMeasurement
	allStale
	resultCount
)

var resultNames = [resultCount]string{"picked", "no_endpoints", "all_excluded", "no_measurement", "all_stale"}

func resultOf(err error) result {
	switch {
	case err == nil:
		return picked
	case errors.Is(err, ErrAllExcluded):
		return allExcluded
	case errors.Is(err, ErrNoMeasurement):
		return noMeasurement
	case errors.Is(err, ErrAllStale):
		return allStale
	}
	return noEndpoints
}

// Results of a probe.
const (
	probeOK      = "ok"
	probeTimeout = "timeout"
	probeRefused = "error"
)

// Metrics count for any number of strategies. The labels are names of strategies and
// results, resolved once; no label contains a service or an endpoint. The duration of a
// pick is not measured, because two clock reads would cost more than the pick.
type Metrics struct {
	picks   map[string]*[resultCount]prometheus.Counter // by strategy
	keyless map[string]prometheus.Counter               // by strategy

	passedOn prometheus.Counter

	scanDepth        prometheus.Histogram
	wraps            prometheus.Counter
	stale            prometheus.Counter
	budgetExhausted  prometheus.Counter
	samplesEffective prometheus.Histogram
	dedupes          prometheus.Counter
	ties             prometheus.Counter

	probes       map[string]prometheus.Counter // by result
	connectTimes prometheus.Histogram
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) (*Metrics, error) {
	reg := &metric.Checked{Registerer: r}
	m := newMetrics(reg)
	return m, reg.Err
}

func newMetrics(reg prometheus.Registerer) *Metrics {
	f := metric.With(reg)
	m := &Metrics{
		picks:   make(map[string]*[resultCount]prometheus.Counter),
		keyless: make(map[string]prometheus.Counter),
		probes:  make(map[string]prometheus.Counter),
	}
	picks := f.CounterVec("ringway_selection_picks_total", "Picks by strategies other than p2c, by result: picked, no_endpoints (none that the strategy may use), all_excluded (the request excludes them all, or they have no room), no_measurement (no connect time measured yet), all_stale.", "strategy", "result")
	keyless := f.CounterVec("ringway_selection_keyless_total", "Picks by a key-based strategy for requests without a key, which may go to any endpoint.", "strategy")
	probes := f.CounterVec("ringway_selection_probes_total", "Connections opened to measure how near an endpoint is, by result: ok, timeout, error.", "result")
	for _, name := range names {
		if name == P2C {
			continue
		}
		m.picks[name] = new([resultCount]prometheus.Counter)
		for i, label := range resultNames {
			m.picks[name][i] = picks.WithLabelValues(name, label)
		}
	}
	for _, name := range []string{Stable, StableSHA256} {
		m.keyless[name] = keyless.WithLabelValues(name)
	}
	for _, label := range []string{probeOK, probeTimeout, probeRefused} {
		m.probes[label] = probes.WithLabelValues(label)
	}
	m.passedOn = f.Counter("ringway_selection_passed_on_total", "Picks by stable that passed over the first endpoint in the key's order because it had as many requests in flight as its bound allows.")
	m.scanDepth = f.Histogram("ringway_selection_scan_depth", "Ring positions that a pick by slots checked, all samples together.", prometheus.ExponentialBuckets(1, 2, 10))
	m.wraps = f.Counter("ringway_selection_wraps_total", "Scans by slots that wrapped around the end of the ring.")
	m.stale = f.Counter("ringway_selection_stale_total", "Stale endpoints that slots passed over, counted once per ring position.")
	m.budgetExhausted = f.Counter("ringway_selection_scan_budget_exhausted_total", "Picks by slots that stopped at the limit of stale endpoints (maxscan).")
	m.samplesEffective = f.Histogram("ringway_selection_samples_effective", "Distinct endpoints that a pick by slots compared; not observed with samples=1.", prometheus.LinearBuckets(0, 1, maxSamples+1))
	m.dedupes = f.Counter("ringway_selection_sample_dedupes_total", "Samples of slots that led to an endpoint already sampled.")
	m.ties = f.Counter("ringway_selection_ties_total", "Picks by slots that were decided at random among equal loads.")
	m.connectTimes = f.Histogram("ringway_selection_connect_duration_seconds", "Connect times measured by closest and farthest.", prometheus.ExponentialBuckets(0.0001, 2.5, 12)) // 100 µs to 2.4 s
	return m
}
