package pool

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/affinity"
)

// Metrics count for any number of pools. No label contains a peer.
type Metrics struct {
	connections *prometheus.GaugeVec
	promotions  prometheus.Counter
	evictions   *prometheus.CounterVec
	candidates  *prometheus.CounterVec
	tiers       *prometheus.CounterVec
	rejected    *prometheus.CounterVec
	failed      prometheus.Counter
}

// Reasons why a request got no connection.
const (
	rejectedNoPeers     = "no_peers"
	rejectedExhausted   = "exhausted"
	rejectedUnavailable = "unavailable"
	rejectedExcluded    = "excluded"
	rejectedTimeout     = "timeout"
	rejectedCancelled   = "cancelled"
	rejectedClosed      = "closed"
)

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) (*Metrics, error) {
	m := newMetrics()
	for _, c := range []prometheus.Collector{m.connections, m.promotions, m.evictions, m.candidates, m.tiers, m.rejected, m.failed} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func newMetrics() *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	vector := func(name, help, label string, values ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
		for _, value := range values {
			v.WithLabelValues(value)
		}
		return v
	}
	m := &Metrics{
		connections: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ringway_pool_connections", Help: "Pooled connections, by state: being opened, of a primary, of a backup, or draining (ending its last requests).",
		}, []string{"state"}),
		promotions: counter("ringway_pool_promotions_total", "Backups that became primaries."),
		evictions: vector("ringway_pool_evictions_total", "Peers that lost their place in a pool, by reason: error_rate, consecutive_failures, latency, stale (replaced because of age, possibly by a new connection to the same peer), lost (connection broke), removed (no longer a peer), locality (nearer peers are available again).",
			"reason", string(ErrorRate), string(ConsecutiveFailures), string(Latency), string(Stale), string(Lost), string(Removed), string(Locality)),
		candidates: vector("ringway_pool_candidate_changes_total", "Changes of a pool's set of candidates, by reason.",
			"reason", string(byAddition), string(byRemoval), string(byMove), string(byHealth)),
		tiers: vector("ringway_pool_locality_tier_selected_total", "Peers drawn for a place in a pool, by locality tier.",
			"tier", affinity.SameDatacenter.String(), affinity.SameRegion.String(), affinity.Global.String()),
		rejected: vector("ringway_pool_rejected_total", "Requests that got no connection, by reason: no_peers, exhausted (all full, and no more allowed), unavailable (none connected), excluded (all tried), timeout (waited too long), cancelled, closed.",
			"reason", rejectedNoPeers, rejectedExhausted, rejectedUnavailable, rejectedExcluded, rejectedTimeout, rejectedCancelled, rejectedClosed),
		failed: counter("ringway_pool_connect_failures_total", "Connections that could not be opened."),
	}
	for _, state := range connectionStates {
		m.connections.WithLabelValues(state)
	}
	return m
}

var connectionStates = [...]string{"opening", "primary", "backup", "draining"}

// moved adds the differences to the gauges, so that several pools can share them.
func (m *Metrics) moved(before, after Connections) {
	for i, by := range [...]int{
		after.Opening - before.Opening, after.Primary - before.Primary,
		after.Backup - before.Backup, after.Draining - before.Draining,
	} {
		if by != 0 {
			m.connections.WithLabelValues(connectionStates[i]).Add(float64(by))
		}
	}
}

func (m *Metrics) count(e Event) {
	switch e.Kind {
	case CandidatesChanged:
		m.candidates.WithLabelValues(string(e.Reason)).Inc()
	case Chosen:
		m.tiers.WithLabelValues(e.Tier.String()).Inc()
	case ConnectFailed:
		m.failed.Inc()
	case Evicted, Refreshed:
		m.evictions.WithLabelValues(string(e.Reason)).Inc()
	case Promoted:
		m.promotions.Inc()
	}
}
