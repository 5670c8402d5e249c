package routing

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ringway/ringway/selection"
)

func TestEvictionsAreCountedByReason(t *testing.T) {
	reg := prometheus.NewRegistry()
	balancer, err := selection.NewBalancer(countEvictions(selection.DefaultConfig(), reg))
	if err != nil {
		t.Fatal(err)
	}
	if err := balancer.Update([]selection.Endpoint{{ID: "w0", Weight: 1}, {ID: "w1", Weight: 1}, {ID: "w2", Weight: 1}, {ID: "w3", Weight: 1}}, 0); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		p, err := balancer.Take("w0", 1e9)
		if err != nil {
			t.Fatal(err)
		}
		balancer.Done(p, 1e9, selection.Failure)
	}
	want := `# HELP ringway_selection_evictions_total Endpoints evicted for some time, by reason: consecutive_failures, error_rate, latency (far above the others' for a long time), half_open (failed again when it was tried).
# TYPE ringway_selection_evictions_total counter
ringway_selection_evictions_total{reason="consecutive_failures"} 1
ringway_selection_evictions_total{reason="error_rate"} 0
ringway_selection_evictions_total{reason="half_open"} 0
ringway_selection_evictions_total{reason="latency"} 0
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
