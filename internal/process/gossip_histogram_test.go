package process

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

func count(t *testing.T, h prometheus.Histogram) uint64 { return read(t, h).GetSampleCount() }

func sum(t *testing.T, h prometheus.Histogram) float64 { return read(t, h).GetSampleSum() }

func read(t *testing.T, h prometheus.Histogram) *dto.Histogram {
	t.Helper()
	var m dto.Metric
	if err := h.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetHistogram()
}
