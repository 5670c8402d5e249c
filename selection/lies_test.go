package selection

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// lies are what an endpoint may report in place of its load.
var lies = map[string]func(n int) int{
	"nothing in flight":         func(int) int { return 0 },
	"the largest number":        func(int) int { return math.MaxInt32 },
	"one and the other in turn": func(n int) int { return n % 2 * math.MaxInt32 },
}

// mostDraws is the share of the picks in which one of n endpoints of equal weight takes part: it is
// in one of pairs of two. A lie cannot win more.
func mostDraws(n, redraws int) float64 {
	return 1 - math.Pow(1-2/float64(n), float64(redraws+1))
}

// lying runs traffic over n endpoints that are equally fast, of which w0 lies. Each honest one
// reports what ten relays like this one have in flight there, so that the difference is large.
func lying(t *testing.T, n int, lie func(int) int) (*rig, load) {
	t.Helper()
	r := newRig(t, DefaultConfig())
	r.update(rangeOf(n))
	r.settle()
	told := 0
	return r, load{rate: 200 * float64(n), during: 20 * time.Second, answer: func(id string, _ Instant) (time.Duration, ended) {
		took := time.Duration(5+r.rng.IntN(10)) * time.Millisecond
		if id == "w0" {
			told++
			return took, Success.with(lie(told))
		}
		return took, Success.with(10 * int(r.state(id).outstanding()))
	}}
}

// One report of a load that no endpoint can have must not keep requests away from its author for good:
// without requests there is no other report.
func TestAHugeLoadKeepsRequestsAwayForTwentySecondsAfterItsLastReport(t *testing.T) {
	const n, until = 5, 20 * time.Second
	r := newRig(t, DefaultConfig())
	r.update(rangeOf(n))
	r.settle()
	lies, tried := true, 0
	traffic := load{rate: 200 * n, during: until, answer: func(id string, _ Instant) (time.Duration, ended) {
		took := time.Duration(5+r.rng.IntN(10)) * time.Millisecond
		if id != "w0" {
			return took, Success.with(int(r.state(id).outstanding()))
		}
		tried++
		if lies {
			return took, Success.with(math.MaxInt32)
		}
		return took, Success.with(int(r.state(id).outstanding()))
	}}
	r.drive(traffic) // it lies with its first answer
	for range 3 {
		tried = 0
		r.drive(traffic)
		if tried == 0 || tried > 20 {
			t.Errorf("while it lies, %d requests try it in %v, want a few", tried, until)
		}
	}
	lies = false
	r.drive(traffic) // the last lie expires
	near(t, "the share of w0 after its lie", r.drive(traffic).shares["w0"], 1.0/n, 0.1)
}

func TestAnEndpointThatLiesAboutItsLoadWinsAtMostTheDrawsInWhichItIs(t *testing.T) {
	for _, n := range []int{3, 5, 10, 40} {
		for name, lie := range lies {
			r, traffic := lying(t, n, lie)
			got := r.drive(traffic)
			share, most := got.shares["w0"], mostDraws(n, r.cfg.Redraws)
			t.Logf("%d endpoints, %s: %.1f times its share, at most %.1f", n, name, share*float64(n), most*float64(n))
			if share > most*1.02 {
				t.Errorf("%d endpoints, %s: it gets %.3f of all requests, at most %.3f are its draws", n, name, share, most)
			}
			if got.failures > 0 {
				t.Errorf("%d endpoints, %s: %d requests failed", n, name, got.failures)
			}
			// The others share the rest equally.
			rest := (1 - share) / float64(n-1)
			for i := 1; i < n; i++ {
				near(t, fmt.Sprintf("%d endpoints, %s: the share of w%d", n, name, i), got.shares[fmt.Sprintf("w%d", i)], rest, 0.25)
			}
		}
	}
}
