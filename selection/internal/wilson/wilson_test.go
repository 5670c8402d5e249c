package wilson_test

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/ringway/ringway/selection/internal/wilson"
)

// Wilson's bound is where the true share p would have to be for what was seen to be
// z standard deviations above it.
func TestTheBoundIsZDeviationsBelowWhatWasSeen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		requests := rapid.Float64Range(1, 1e6).Draw(t, "requests")
		failures := requests * rapid.Float64Range(0, 1).Draw(t, "share")
		z := rapid.Float64Range(0.1, 6).Draw(t, "z")
		p := wilson.LowerBound(failures, requests, z)
		if p < -1e-12 || p > failures/requests+1e-12 {
			t.Fatalf("%v of %v: bound %v", failures, requests, p)
		}
		if off := failures/requests - p - z*math.Sqrt(max(0, p*(1-p))/requests); math.Abs(off) > 1e-6 {
			t.Fatalf("%v of %v at z=%v: bound %v is off by %v", failures, requests, z, p, off)
		}
	})
}

func TestMoreRequestsMakeTheSameShareSurer(t *testing.T) {
	for _, c := range []struct{ failures, requests, want float64 }{
		{1, 10, 0.0056009}, {10, 100, 0.030843}, {100, 1000, 0.068129},
	} {
		if got := wilson.LowerBound(c.failures, c.requests, wilson.Sure); math.Abs(got-c.want) > 1e-5 {
			t.Errorf("%v of %v: %v, want %v", c.failures, c.requests, got, c.want)
		}
	}
}

func Example() {
	for _, requests := range []float64{20, 200, 2000} {
		fmt.Printf("a tenth of %4.0f requests failed: surely more than %.1f %%\n",
			requests, 100*wilson.LowerBound(requests/10, requests, wilson.Sure))
	}
	// Output:
	// a tenth of   20 requests failed: surely more than 1.0 %
	// a tenth of  200 requests failed: surely more than 4.3 %
	// a tenth of 2000 requests failed: surely more than 7.6 %
}
