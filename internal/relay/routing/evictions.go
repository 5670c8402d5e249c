package routing

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/ringway/ringway/selection"
)

// countEvictions makes the balancers count their evictions.
func countEvictions(cfg selection.Config, reg prometheus.Registerer) selection.Config {
	evictions := promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
		Name: "ringway_selection_evictions_total", Help: "Endpoints evicted for some time, by reason: consecutive_failures, error_rate, latency (far above the others' for a long time), half_open (failed again when it was tried).",
	}, []string{"reason"})
	of := map[selection.EvictionCause]prometheus.Counter{}
	for _, cause := range selection.EvictionCauses() {
		of[cause] = evictions.WithLabelValues(string(cause))
	}
	cfg.OnEvict = func(cause selection.EvictionCause) { of[cause].Inc() }
	return cfg
}
