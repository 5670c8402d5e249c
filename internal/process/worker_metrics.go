package process

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// details begin the names of metrics for a developer who inspects one process.
var details = []string{"go_gc_", "go_memstats_", "go_sched_", "ringway_memberlist_", "ringway_discovery_dns_resolution_", "ringway_status_page_"}

// brief gathers what changes, or what an operator of thousands of processes compares. It leaves out
// details, and counters by reason, result or the like for what has not happened: most of the series
// of a worker would stay at 0. Reloads stay, because their alerts fire after one that was refused.
type brief struct{ all prometheus.Gatherer }

// Gather implements prometheus.Gatherer.
func (b brief) Gather() ([]*dto.MetricFamily, error) {
	families, err := b.all.Gather()
	families = slices.DeleteFunc(families, func(f *dto.MetricFamily) bool {
		if slices.ContainsFunc(details, func(prefix string) bool { return strings.HasPrefix(f.GetName(), prefix) }) {
			return true
		}
		if strings.HasSuffix(f.GetName(), "_reloads_total") {
			return false
		}
		f.Metric = slices.DeleteFunc(f.Metric, func(m *dto.Metric) bool {
			return len(m.GetLabel()) > 0 && m.Counter != nil && m.Counter.GetValue() == 0
		})
		return len(f.Metric) == 0
	})
	return families, err
}
