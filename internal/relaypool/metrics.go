package relaypool

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/metric"
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
	reg := &metric.Checked{Registerer: r}
	m := newMetrics(reg)
	return m, reg.Err
}

func newMetrics(reg prometheus.Registerer) *Metrics {
	f := metric.With(reg)
	m := &Metrics{
		connections: f.GaugeVec("ringway_pool_connections", "Pooled connections, by state: being opened, of a primary, of a backup, or draining (ending its last requests).", "state"),
		promotions:  f.Counter("ringway_pool_promotions_total", "Backups that became primaries."),
		evictions:   f.CounterVec("ringway_pool_evictions_total", "Peers that lost their place in a pool, by reason: error_rate, consecutive_failures, latency, stale (replaced because of age, possibly by a new connection to the same peer), lost (connection broke), removed (no longer a peer), locality (nearer peers are available again), surplus (fewer peers are needed).", "reason"),
		candidates:  f.CounterVec("ringway_pool_candidate_changes_total", "Changes of a pool's set of candidates, by reason.", "reason"),
		tiers:       f.CounterVec("ringway_pool_locality_tier_selected_total", "Peers drawn for a place in a pool, by locality tier.", "tier"),
		rejected:    f.CounterVec("ringway_pool_rejected_total", "Requests that got no connection, by reason: no_peers, exhausted (all full, and no more allowed), unavailable (none connected), excluded (all tried), timeout (waited too long), cancelled, closed.", "reason"),
		failed:      f.Counter("ringway_pool_connect_failures_total", "Connections that could not be opened."),
	}
	metric.StartAtZero(m.evictions, ErrorRate, ConsecutiveFailures, Latency, Stale, Lost, Removed, Locality, Surplus)
	metric.StartAtZero(m.candidates, byAddition, byRemoval, byMove, byHealth)
	metric.StartAtZero(m.tiers, affinity.SameDatacenter.String(), affinity.SameRegion.String(), affinity.Global.String())
	metric.StartAtZero(m.rejected, rejectedNoPeers, rejectedExhausted, rejectedUnavailable, rejectedExcluded, rejectedTimeout, rejectedCancelled, rejectedClosed)
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
