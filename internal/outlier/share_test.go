package outlier

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// Wilson's bound is where the true share p would have to be for what was seen to be
// z standard deviations above it.
func TestTheBoundIsZDeviationsBelowWhatWasSeen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		requests := rapid.Float64Range(1, 1e6).Draw(t, "requests")
		failures := requests * rapid.Float64Range(0, 1).Draw(t, "share")
		z := rapid.Float64Range(0.1, 6).Draw(t, "z")
		p := lowerBound(Count{Failures: failures, Requests: requests}, z)
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
		if got := lowerBound(Count{Failures: c.failures, Requests: c.requests}, sure); math.IsNaN(got) || math.Abs(got-c.want) > 1e-5 {
			t.Errorf("%v of %v: %v, want %v", c.failures, c.requests, got, c.want)
		}
	}
}

// Values of Newcombe's paper, table II, method 10, at z = 1.96.
func TestTheExcessIsTheLowerEndOfNewcombesInterval(t *testing.T) {
	for _, c := range []struct {
		one, others Count
		want        float64
	}{
		{Count{Failures: 56, Requests: 70}, Count{Failures: 48, Requests: 80}, 0.0524},
		{Count{Failures: 9, Requests: 10}, Count{Failures: 3, Requests: 10}, 0.1705},
		{Count{Failures: 10, Requests: 10}, Count{Failures: 0, Requests: 20}, 0.6791},
		{Count{Failures: 10, Requests: 10}, Count{Failures: 10, Requests: 10}, -0.2775},
	} {
		if got := excess(c.one, c.others, 1.959964); math.IsNaN(got) || math.Abs(got-c.want) > 1e-4 {
			t.Errorf("%v against %v: %v, want %v", c.one, c.others, got, c.want)
		}
	}
}

func TestABoundAtTheLimitIsNotAboveIt(t *testing.T) {
	c, others := Count{Failures: 12, Requests: 20}, Others{Count: Count{Failures: 1, Requests: 100}}
	if l := (Limits{Share: lowerBound(c, sure)}); l.surely(c) {
		t.Error("the share")
	}
	if others.exceededBy(c, excess(c, others.Count, sure)) {
		t.Error("the excess")
	}
}
