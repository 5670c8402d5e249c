package relay

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/ringway/ringway/selection"
)

// countEvictions has the balancers count their evictions.
func countEvictions(cfg selection.Config, reg prometheus.Registerer) selection.Config {
	evictions := promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
		Name: "ringway_selection_evictions_total", Help: "Endpoints that get no requests for a while, by reason: consecutive_failures, error_rate, latency (lastingly far above the others'), half_open (failed again when it was tried).",
	}, []string{"reason"})
	of := map[selection.EvictionCause]prometheus.Counter{}
	for _, cause := range selection.EvictionCauses() {
		of[cause] = evictions.WithLabelValues(string(cause))
	}
	cfg.OnEvict = func(cause selection.EvictionCause) { of[cause].Inc() }
	return cfg
}
