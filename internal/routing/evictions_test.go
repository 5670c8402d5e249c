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

// A sample of the picks is timed, whatever the clock's resolution, and none of them allocates.
func TestOneOfAboutAThousandPicksIsMeasured(t *testing.T) {
	reg := prometheus.NewRegistry()
	s, err := NewService("echo", selection.DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	s.picks = newPickMetrics(reg)
	if err := s.SetRoute(&Route{Range: []*Target{{ID: "w1.1", Node: "w1", Weight: 1}, {ID: "w2.1", Node: "w2", Weight: 1}}}, 0); err != nil {
		t.Fatal(err)
	}
	tried, measured := &Tried{}, uint64(0)
	for _, resolution := range []selection.Instant{1, 100, 1000, 1_000_000} {
		now := 7*resolution + 3
		pick := func() {
			now += resolution
			p, err := s.Pick("", now, tried)
			if err != nil {
				t.Fatal(err)
			}
			s.Endpoints.Done(p, now, selection.Result{Outcome: selection.Success})
		}
		if n := testing.AllocsPerRun(1<<17, pick); n != 0 {
			t.Errorf("%v allocations in a pick", n)
		}
		families, err := reg.Gather()
		if err != nil || len(families) != 2 {
			t.Fatalf("%d families: %v", len(families), err)
		}
		durations, endpoints := families[0].GetMetric()[0].GetHistogram(), families[1].GetMetric()[0].GetHistogram()
		if n := durations.GetSampleCount() - measured; n < 64 || n > 256 {
			t.Errorf("of %d picks at %dns each %d were measured", 1<<17, resolution, n)
		}
		measured = durations.GetSampleCount()
		if endpoints.GetSampleCount() != measured || endpoints.GetSampleSum() != 2*float64(measured) || durations.GetSampleSum() <= 0 {
			t.Errorf("%v endpoints and %v seconds in %d picks", endpoints.GetSampleSum(), durations.GetSampleSum(), measured)
		}
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
