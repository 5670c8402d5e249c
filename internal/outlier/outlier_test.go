package outlier_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ringway/ringway/internal/outlier"
)

// Wilson's bound is where the true share p would have to be for what was seen to be
// z standard deviations above it.
func TestTheBoundIsZDeviationsBelowWhatWasSeen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		requests := rapid.Float64Range(1, 1e6).Draw(t, "requests")
		failures := requests * rapid.Float64Range(0, 1).Draw(t, "share")
		z := rapid.Float64Range(0.1, 6).Draw(t, "z")
		p := outlier.LowerBound(failures, requests, z)
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
		if got := outlier.LowerBound(c.failures, c.requests, outlier.Sure); math.IsNaN(got) || math.Abs(got-c.want) > 1e-5 {
			t.Errorf("%v of %v: %v, want %v", c.failures, c.requests, got, c.want)
		}
	}
}

func Example() {
	for _, requests := range []float64{20, 200, 2000} {
		fmt.Printf("a tenth of %4.0f requests failed: surely more than %.1f %%\n",
			requests, 100*outlier.LowerBound(requests/10, requests, outlier.Sure))
	}
	// Output:
	// a tenth of   20 requests failed: surely more than 1.0 %
	// a tenth of  200 requests failed: surely more than 4.3 %
	// a tenth of 2000 requests failed: surely more than 7.6 %
}

func TestEvictionsDoubleUpToTheLongest(t *testing.T) {
	for _, c := range []struct {
		k      int
		random float64
		want   time.Duration
	}{
		{1, 0, time.Second}, {1, 0.5, 1500 * time.Millisecond}, {3, 0, 4 * time.Second},
		{5, 0, 15 * time.Second}, {16, 0, 15 * time.Second}, {100, 0.5, 22500 * time.Millisecond},
	} {
		if got := outlier.Eviction(c.k, 30*time.Second, c.random); got != c.want {
			t.Errorf("eviction %d with %v: %v, want %v", c.k, c.random, got, c.want)
		}
	}
	const day = 24 * time.Hour
	for k, want := range map[int]time.Duration{15: time.Second << 14, 16: day / 2, 1000: day / 2} {
		if got := outlier.Eviction(k, day, 0); got != want {
			t.Errorf("eviction %d of a day at most: %v, want %v", k, got, want)
		}
	}
}

// Values of Newcombe's paper, table II, method 10, at z = 1.96.
func TestTheExcessIsTheLowerEndOfNewcombesInterval(t *testing.T) {
	for _, c := range []struct {
		one, others outlier.Count
		want        float64
	}{
		{outlier.Count{Failures: 56, Requests: 70}, outlier.Count{Failures: 48, Requests: 80}, 0.0524},
		{outlier.Count{Failures: 9, Requests: 10}, outlier.Count{Failures: 3, Requests: 10}, 0.1705},
		{outlier.Count{Failures: 10, Requests: 10}, outlier.Count{Failures: 0, Requests: 20}, 0.6791},
		{outlier.Count{Failures: 10, Requests: 10}, outlier.Count{Failures: 10, Requests: 10}, -0.2775},
	} {
		if got := outlier.Excess(c.one, c.others, 1.959964); math.IsNaN(got) || math.Abs(got-c.want) > 1e-4 {
			t.Errorf("%v against %v: %v, want %v", c.one, c.others, got, c.want)
		}
	}
}
