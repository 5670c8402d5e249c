package relay

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/routing"
)

// coverage is a metric: the number of relays that the plans give to the worker with the
// fewest. Each plan is counted only once, because that is too expensive for every scrape.
type coverage struct {
	services func() []*routing.Service
	desc     *prometheus.Desc

	mu      sync.Mutex
	counted map[*routing.Service]countedPlan
}

type countedPlan struct {
	route *routing.Route
	least int // relays per worker
	known bool
}

func newCoverage(reg prometheus.Registerer, services func() []*routing.Service) {
	reg.MustRegister(&coverage{services: services, desc: prometheus.NewDesc(
		"ringway_relay_coverage_min_relays",
		"Relays that connect to the worker with the fewest, over all services, by the newest plans and without what has vanished; absent while there is nothing to plan.", nil, nil)})
}

// Describe implements prometheus.Collector.
func (c *coverage) Describe(descs chan<- *prometheus.Desc) { descs <- c.desc }

// Collect reads the newest route of every service.
func (c *coverage) Collect(metrics chan<- prometheus.Metric) {
	if least, known := c.least(); known {
		metrics <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(least))
	}
}

func (c *coverage) least() (least int, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	services := c.services()
	counted := make(map[*routing.Service]countedPlan, len(services))
	for _, s := range services {
		of, seen := c.counted[s]
		if route := s.Route(); !seen || of.route != route {
			of = countPlan(route)
		}
		counted[s] = of
		if of.known && (!known || of.least < least) {
			least, known = of.least, true
		}
	}
	c.counted = counted // services that are gone are dropped
	return least, known
}

func countPlan(route *routing.Route) countedPlan {
	of := countedPlan{route: route}
	if route.Plan == nil {
		return of
	}
	answer, err := describePlan(route)
	if err != nil || len(answer.RelaysPerWorker) == 0 {
		return of
	}
	of.least, of.known = answer.Coverage.RelaysPerWorker.Min, true
	return of
}
