package routing

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ringway/ringway/internal/proxy/upstream"
)

// A connection that is open proves nothing: behind a broken path it stays open.
func TestARelayThatReachesNoWorkerForTenSecondsReportsItWithoutAnyTraffic(t *testing.T) {
	var cut bool
	dial := func(context.Context, string, string) (net.Conn, error) {
		if cut {
			return nil, errors.New("no route to host")
		}
		ours, theirs := net.Pipe()
		t.Cleanup(func() { _ = theirs.Close() })
		return ours, nil
	}
	var pools []*upstream.Pool
	for range 3 {
		p, err := upstream.NewPool(upstream.Config{Address: "worker:80", Dial: dial})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		if err := p.Warm(t.Context()); err != nil {
			t.Fatal(err)
		}
		pools = append(pools, p)
	}
	r := newReach(Config{ReachTimeout: 10 * time.Second, Registerer: prometheus.NewRegistry()})
	now := time.Unix(0, 0)
	// after is the time until the reason is there, or is not, up to limit.
	after := func(limit time.Duration, reason bool) time.Duration {
		for passed := time.Duration(0); passed < limit; passed += time.Second {
			r.probe(t.Context(), pools, "worker", now)
			r.running.Wait()
			if got := r.reason.Load(); (got != nil) == reason {
				return passed
			}
			now = now.Add(time.Second)
		}
		return limit
	}
	const hour = time.Hour
	if got := after(hour, true); got != hour {
		t.Errorf("without traffic a relay that reaches its workers is not ready after %v", got)
	}
	if got := testutil.ToFloat64(r.probes.WithLabelValues(probeOK)); got < 360 || got > 720 {
		t.Errorf("%v probes in an hour, want one in 5 to 10 s", got)
	}
	cut = true
	// The last proof is up to half of the timeout old.
	if got := after(hour, true); got < 4*time.Second || got > 11*time.Second {
		t.Errorf("a relay that is cut off is not ready after %v", got)
	}
	if reason := *r.reason.Load(); !strings.Contains(reason, "reaches no worker: none of the 3") {
		t.Errorf("the reason is %q", reason)
	}
	if got := after(time.Minute, false); got != time.Minute {
		t.Errorf("ready again after %v, and still cut off", got)
	}
	cut = false
	if got := after(hour, false); got > 3*time.Second {
		t.Errorf("a relay that reaches its workers again is ready after %v", got)
	}

	// Where there is no worker to reach, nothing is wrong.
	cut, pools = true, nil
	if got := after(hour, true); got != hour {
		t.Errorf("a relay without workers is not ready after %v", got)
	}
}
