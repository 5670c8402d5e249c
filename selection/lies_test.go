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
	return r, load{rate: 200 * float64(n), during: 20 * time.Second, answer: func(id string, _ Instant) (time.Duration, Outcome) {
		took := time.Duration(5+r.rng.IntN(10)) * time.Millisecond
		if id == "w0" {
			told++
			return took, Success.WithLoad(lie(told))
		}
		return took, Success.WithLoad(10 * int(r.state(id).outstanding()))
	}}
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
