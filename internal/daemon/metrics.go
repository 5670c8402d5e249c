package daemon

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// BuildInfo is a metric that says which build runs.
func BuildInfo() prometheus.Collector {
	b := ReadBuild()
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "ringway_build_info", Help: "1, with the version of the running build in its labels.",
		ConstLabels: prometheus.Labels{"version": b.Version, "revision": b.Revision, "go_version": b.Go},
	})
	g.Set(1)
	return g
}

// RegisterReady adds a metric of whether the process should get traffic, which it
// should while there are no reasons why not. Reasons are asked for at every scrape.
func RegisterReady(reg prometheus.Registerer, reasons func() []string) {
	promauto.With(reg).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ringway_ready", Help: "1 while this process should get traffic, as /readyz says; 0 while it should not.",
	}, func() float64 {
		if len(reasons()) > 0 {
			return 0
		}
		return 1
	})
}
