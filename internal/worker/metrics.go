package worker

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// The results of reloads.
const (
	reloadApplied   = "applied"
	reloadUnchanged = "unchanged"
	reloadRefused   = "refused"
)

var states = [...]State{Offered, Unhealthy, Draining}

type metrics struct {
	services *prometheus.GaugeVec
	reloads  *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	m := &metrics{
		services: f.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ringway_worker_services", Help: "Services of this worker, by what becomes of them: offered, unhealthy (relays do not know them), draining (relays send nothing new).",
		}, []string{"state"}),
		reloads: f.NewCounterVec(prometheus.CounterOpts{
			Name: "ringway_worker_reloads_total", Help: "Reloads of the services, by a signal, the admin API or a changed file: applied, unchanged, refused (nothing changed).",
		}, []string{"result"}),
	}
	for _, result := range []string{reloadApplied, reloadUnchanged, reloadRefused} {
		m.reloads.WithLabelValues(result)
	}
	m.count(nil)
	return m
}

func (m *metrics) count(services map[State]int) {
	for _, state := range states {
		m.services.WithLabelValues(string(state)).Set(float64(services[state]))
	}
}
