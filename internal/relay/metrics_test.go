package relay

import (
	"strings"
	"testing"
)

// A service has series from its first request on, all of them together, or a rate would
// not see its first failure.
func TestTheCountersOfAServiceBeginWithItsFirstRequest(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(*Settings) {})
	f.echo("w1")
	r.settled(t, "echo", 1)
	_, text := r.api(t, "/metrics", nil)
	if strings.Contains(text, `service="echo"`) {
		t.Error("a service that got no request has series")
	}
	if resp, body := r.call(t, "GET", "/", nil, "Ringway-Service: echo"); resp.StatusCode != 200 {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	_, text = r.api(t, "/metrics", nil)
	for _, want := range []string{
		`ringway_relay_requests_total{outcome="5xx",service="echo"} 0`,
		`ringway_relay_retries_total{reason="no_budget",service="echo"} 0`,
		`ringway_relay_request_attempts_bucket{le="0"} 0`,
		`ringway_relay_request_attempts_bucket{le="1"} 1`,
		`ringway_relay_rejections_total{code="overloaded",service="echo"} 0`,
		`ringway_relay_rejections_total{code="unknown_service",service=""} 0`,
		`ringway_relay_endpoints_left_out_total{reason="no_certificate"} 0`,
		`ringway_membership_refusals_total{direction="inbound",reason="gossip_key"} 0`,
		`ringway_relay_coverage_min_relays 1`,
		`ringway_ready 1`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s", want)
		}
	}
}
