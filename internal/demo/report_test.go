package demo

import (
	"strings"
	"testing"

	"github.com/ringway/ringway/internal/api"
)

func view(id, role string, retries uint64, peers ...api.Peer) relayView {
	return relayView{ID: id, Retries: retries, Service: api.Service{ServiceSummary: api.ServiceSummary{Role: role}, Peers: peers}}
}

func TestTheReportCountsConnectionsOfAffineRelaysOnly(t *testing.T) {
	seen := counts{Requests: 10, Worker: map[string]uint64{"worker-01": 7, "worker-02": 3}, Latency: newHistogram()}
	for range 10 {
		_ = seen.Latency.RecordValue(2500)
	}
	on := func(node string) api.Peer { return api.Peer{Node: node, Connected: true} }
	views := []relayView{
		view("relay-1", "affine", 2, on("worker-01"), on("worker-02")),
		view("relay-2", "affine", 1, on("worker-01"), api.Peer{Node: "worker-02"}),
		view("relay-3", "forwarding", 0, on("relay-1"), on("relay-2")),
	}
	got := newReport([]string{"worker-01", "worker-02", "worker-03"}, seen, views)
	want := report{Requests: 10, Retries: 3, P50: 2.501, P99: 2.501,
		RequestsPerWorker: minMax{0, 7}, RelaysPerWorker: minMax{0, 2}, WorkersPerRelay: minMax{1, 2}}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestARunIsGoodOnlyIfRequestsWereSentAndNoneFailed(t *testing.T) {
	for name, c := range map[string]struct {
		report report
		want   string
	}{
		"all answered": {report{Requests: 3}, ""},
		"one failed":   {report{Requests: 3, Errors: 1}, "1 of 3 requests failed"},
		"nothing sent": {report{}, "no request was sent"},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.report.check()
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("check() = %v, want %q", err, c.want)
			}
		})
	}
}

func TestRetriesThatWereNotMadeDoNotCount(t *testing.T) {
	const metrics = `# TYPE ringway_relay_retries_total counter
ringway_relay_retries_total{reason="dial",service="demo"} 4
ringway_relay_retries_total{reason="no_budget",service="demo"} 100
ringway_relay_retries_total{reason="response",service="demo"} 3
# TYPE other_total counter
other_total 9
`
	if got, err := retries(strings.NewReader(metrics)); err != nil || got != 7 {
		t.Errorf("retries = %d, %v; want 7", got, err)
	}
	if got, err := retries(strings.NewReader("")); err != nil || got != 0 {
		t.Errorf("retries of a relay that never retried = %d, %v; want 0", got, err)
	}
	if _, err := retries(strings.NewReader("not { metrics")); err == nil {
		t.Error("no error for text that is no metrics")
	}
}

func TestAFleetIsWholeOnlyWhenEveryRelayIsConnectedToItsRange(t *testing.T) {
	whole := func() []relayView {
		v := view("relay-1", "affine", 0, api.Peer{Node: "worker-01", Connected: true}, api.Peer{Node: "worker-02", Connected: true})
		v.Ready, v.Endpoints, v.AffineRelays = true, 2, []string{"relay-1"}
		return []relayView{v}
	}
	for name, c := range map[string]struct {
		spoil func(*relayView)
		want  string
	}{
		"whole":                   {func(*relayView) {}, ""},
		"not ready":               {func(v *relayView) { v.Ready = false }, "relay-1 is not ready"},
		"a worker unknown":        {func(v *relayView) { v.Endpoints = 1 }, "relay-1 knows 1 of 2 workers"},
		"itself unknown":          {func(v *relayView) { v.AffineRelays = nil }, "relay-1 knows 0 of 1 relays"},
		"a connection is missing": {func(v *relayView) { v.Peers[1].Connected = false }, "relay-1 is not connected to worker-02"},
	} {
		t.Run(name, func(t *testing.T) {
			views := whole()
			c.spoil(&views[0])
			if got := missing(views, 2); got != c.want {
				t.Errorf("missing = %q, want %q", got, c.want)
			}
		})
	}
}
