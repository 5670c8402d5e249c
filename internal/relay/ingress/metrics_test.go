package ingress

import (
	"maps"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ringway/ringway/internal/relay/upstream"
)

// A rate sees nothing of a series that begins with its first event, so that one must
// not be what makes the series.
func TestTheFirstEventOfAKindIsNoNewSeries(t *testing.T) {
	m := NewMetrics(prometheus.NewRegistry())
	m.Expect("echo")
	counts := func() [4]int {
		return [...]int{
			testutil.CollectAndCount(m.requests), testutil.CollectAndCount(m.durations),
			testutil.CollectAndCount(m.retries), testutil.CollectAndCount(m.rejections),
		}
	}
	before := counts()
	if slices.Contains(before[:], 0) {
		t.Fatalf("series at the start: %v", before)
	}
	of := m.of("echo")
	for o := range outcomes {
		of.finished(outcome(o), 1)
	}
	for stage := range upstream.Stage(100) {
		of.retried(stage.String())
	}
	for _, reason := range []string{stageMisdirected, stageOther, stageNoBudget} {
		of.retried(reason)
	}
	for _, code := range append(slices.Collect(maps.Keys(statusOf)), codeMisdirected) {
		if code == CodeUnknownService {
			m.unnamed(code)
			continue
		}
		of.rejected(code)
	}
	m.unnamed(CodeBadRequest)
	if after := counts(); after != before {
		t.Errorf("series of requests, durations, retries and rejections: %v at the start, %v later", before, after)
	}
	for _, stage := range upstream.Stages() {
		if got := testutil.ToFloat64(m.retries.WithLabelValues("echo", stage.String())); got != 1 {
			t.Errorf("%v retries because of %s, want 1", got, stage)
		}
	}
	nameless := float64(100 - len(upstream.Stages()))
	if got := testutil.ToFloat64(m.retries.WithLabelValues("echo", stageOther)); got != nameless+1 {
		t.Errorf("%v retries for other reasons, want those of the %v stages that have no name, and one", got, nameless)
	}
}
