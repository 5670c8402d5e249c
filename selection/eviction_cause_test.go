package selection

import (
	"testing"
	"time"
)

func TestEveryEvictionIsReportedWithItsCause(t *testing.T) {
	told := map[EvictionCause]int{}
	cfg := DefaultConfig()
	cfg.OnEvict = func(c EvictionCause) { told[c]++ }
	expect := func(cause EvictionCause, n int) {
		t.Helper()
		if told[cause] != n {
			t.Errorf("%s: %d, want %d; all: %v", cause, told[cause], n, told)
		}
	}

	r := fleet(t, 5, cfg)
	r.requests(4, "w0", ms, Failure)
	expect(forFailuresInARow, 1)
	r.evictedFor() // until it may be tried
	r.request("w0", ms, Failure)
	expect(forFailingAgain, 1)

	r = fleet(t, 30, cfg)
	for range 20 {
		r.requests(2, "w0", ms, Failure)
		r.request("w0", ms, Success)
		if r.stats("w0").State != "active" {
			break
		}
		for i := range 29 { // the range as a whole is well
			r.requests(3, rangeOf(30)[i+1].ID, ms, Success)
		}
	}
	expect(forErrorRate, 1)

	r = newRig(t, cfg)
	r.update(rangeOf(10))
	r.trickle(5*time.Second, 20*ms, 1)
	r.trickle(12*time.Second, 200*ms, 1)
	expect(forLatency, 1)

	if total := len(told); total != len(EvictionCauses()) {
		t.Errorf("%d causes were told, there are %d: %v", total, len(EvictionCauses()), told)
	}
}
