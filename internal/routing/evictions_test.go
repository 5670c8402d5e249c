package routing

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ringway/ringway/internal/loglimit"
	"github.com/ringway/ringway/internal/relaypool"
	"github.com/ringway/ringway/selection"
)

func TestEvictionsAreCountedByReason(t *testing.T) {
	reg := prometheus.NewRegistry()
	balancer, err := selection.NewBalancer[*Target](countEvictions(selection.DefaultConfig(), reg))
	if err != nil {
		t.Fatal(err)
	}
	if err := balancer.Update([]selection.Endpoint[*Target]{{ID: "w0", Weight: 1}, {ID: "w1", Weight: 1}, {ID: "w2", Weight: 1}, {ID: "w3", Weight: 1}}, 0); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		p, err := balancer.Take("w0", 1e9)
		if err != nil {
			t.Fatal(err)
		}
		balancer.Done(p, 1e9, selection.Result{Outcome: selection.Failure})
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

// A thousand services lose a relay at the same time.
func TestEvictionsOfRelaysAreLoggedWithTheirReasonAndNotByTheThousand(t *testing.T) {
	var out bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&out, nil))
	f := &forwarding{logger: logger, lines: loglimit.New(logger), ctx: t.Context()}
	for range 1000 {
		f.logEvent("echo", relaypool.Event{Kind: relaypool.Evicted, Peer: "r1", Role: relaypool.Primary, Reason: relaypool.Removed, Detail: "it is not a peer any more"})
	}
	f.lines.Stop()
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if want := `level=INFO msg="relay to forward to: evicted" service=echo relay=r1 role=primary reason=removed`; !strings.Contains(lines[0], want) {
		t.Errorf("got %s, want %s", lines[0], want)
	}
	if n := len(lines); n != loglimit.Lines+1 || !strings.HasSuffix(lines[n-1], "count=990") {
		t.Errorf("%d lines, the last is %s", n, lines[n-1])
	}
}
