package membership

import (
	"os"
	"regexp"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ringway/ringway/membership/identity"
)

// A rate sees nothing of a series that begins with its first event, so that one must
// not be what makes the series.
func TestTheFirstEventOfAKindIsNoNewSeries(t *testing.T) {
	m := newMetrics(prometheus.NewRegistry(), func() float64 { return 0 })
	counts := func() [4]int {
		return [...]int{
			testutil.CollectAndCount(m.events), testutil.CollectAndCount(m.refusals),
			testutil.CollectAndCount(m.dropped), testutil.CollectAndCount(m.joins),
		}
	}
	before := counts()
	if before[0] == 0 || before[1] == 0 || before[2] == 0 || before[3] == 0 {
		t.Fatalf("series at the start: %v", before)
	}
	for _, direction := range []string{inbound, outbound} {
		for _, field := range answerFields[1:] {
			m.refused(direction, field)
		}
		for _, reason := range identity.Reasons() {
			m.refused(direction, string(reason))
		}
	}
	for _, event := range tableEvents(t) {
		m.events.WithLabelValues(event).Inc()
	}
	if after := counts(); after != before {
		t.Errorf("series of events, refusals, drops and joins: %v at the start, %v later", before, after)
	}
}

// tableEvents are all that the source of the table names.
func tableEvents(t *testing.T) (events []string) {
	t.Helper()
	source, err := os.ReadFile("table.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`change\{\{"([a-z]+)"|\}, \{"([a-z]+)", m\}`).FindAllSubmatch(source, -1) {
		events = append(events, string(m[1])+string(m[2]))
	}
	if len(events) < 6 {
		t.Fatalf("found only %v", events)
	}
	return events
}

func TestNoLabelValueHasASpace(t *testing.T) {
	m := newMetrics(prometheus.NewRegistry(), func() float64 { return 0 })
	m.refused(inbound, fieldKey)
	if got := testutil.ToFloat64(m.refusals.WithLabelValues(inbound, "gossip_key")); got != 1 {
		t.Errorf("%v refusals because of gossip_key, want 1", got)
	}
}
