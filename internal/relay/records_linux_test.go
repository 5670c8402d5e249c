package relay

import (
	"net/http"
	"testing"

	"github.com/ringway/ringway/internal/logtest"
)

func TestAFullDiskFailsNoRequestAndIsLoggedOnce(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(s *Settings) { s.RequestLog = "/dev/full" })
	f.echo("w1")
	r.settled(t, "echo", 1)
	sent := 0
	for dropped := 0.0; dropped < 5; dropped = logtest.Series(t, r.cfg.Registry, "ringway_relay_request_log_dropped_total")["write_failed"] {
		if resp, body := r.call(t, http.MethodGet, "/", nil, "Ringway-Service: echo"); resp.StatusCode != http.StatusOK {
			t.Fatal(resp.Status, body)
		}
		sent++
	}
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	if n := logtest.Series(t, r.cfg.Registry, "ringway_relay_request_log_dropped_total")["write_failed"]; int(n) != sent {
		t.Errorf("%v of %d records are counted as dropped", n, sent)
	}
	if n := r.log.Lines("cannot write the request log"); n != 1 {
		t.Errorf("the full disk is logged %d times:\n%s", n, r.log)
	}
}
