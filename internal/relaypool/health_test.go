package relaypool

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ringway/ringway/selection"
)

var start = time.Unix(1_000_000, 0)

func TestTheAverageBeginsWithTheFirstSampleAndFollowsByAlpha(t *testing.T) {
	var h health
	for i, c := range []struct{ sample, want time.Duration }{
		{100 * time.Millisecond, 100 * time.Millisecond},
		{200 * time.Millisecond, 120 * time.Millisecond},
		{20 * time.Millisecond, 100 * time.Millisecond},
	} {
		h.success(c.sample, 0.2, start)
		if d := h.latency - c.want; d < -10 || d > 10 { // nanoseconds of rounding
			t.Errorf("sample %d: average %v, want %v", i, h.latency, c.want)
		}
	}
	h = health{}
	h.success(0, 0.2, start)
	if h.latency == 0 {
		t.Error("a sample of zero looks like none")
	}
}

func TestThePercentileIsTheNearestRankOfTheLastHundred(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		samples := rapid.SliceOfN(rapid.Map(rapid.IntRange(1, 50), func(n int) time.Duration { return time.Duration(n) }), 1, 100).Draw(t, "samples")
		sorted := slices.Clone(samples)
		slices.Sort(sorted)
		want := sorted[int(math.Ceil(0.99*float64(len(sorted))))-1]
		if got := percentile99(samples); got != want {
			t.Fatalf("%v of %v, want %v", got, samples, want)
		}
	})
	var h health
	for range 500 {
		h.success(time.Second, 0.2, start)
	}
	for range 100 {
		h.success(time.Millisecond, 0.2, start)
	}
	if h.p99 != time.Millisecond {
		t.Errorf("after a hundred fast ones the percentile is %v", h.p99)
	}
}

func TestFailuresAreForgottenAsTimePasses(t *testing.T) {
	var h health
	for range 50 {
		h.failure(start)
	}
	if got := h.errorRate(start); got < 0.95 {
		t.Errorf("error rate %v after nothing but failures", got)
	}
	if got := h.errorRate(start.Add(time.Minute)); got > 0.15 {
		t.Errorf("error rate %v a minute later", got)
	}
	// A long life before does not dilute a new trouble.
	h = health{}
	for range 100_000 {
		h.success(time.Millisecond, 0.2, start)
	}
	later := start.Add(time.Minute)
	for range 20 {
		h.failure(later)
	}
	if got := h.errorRate(later); got < 0.04 {
		t.Errorf("error rate %v after 20 failures in a row", got)
	}
	if got := h.errorRate(later.Add(30 * time.Second)); got > 0.5 {
		t.Errorf("error rate %v, with fading counts", got)
	}
}

func TestAnUntriedPeerCountsAsTypicalAndOneThatOnlyFailedNeverAsFree(t *testing.T) {
	const typical, baseline = 5 * time.Millisecond, 10 * time.Millisecond
	var untried, failed health
	for range 3 {
		failed.failure(start)
	}
	for _, c := range []struct {
		name string
		h    health
		at   time.Duration
		want time.Duration
	}{
		{"untried", untried, 0, typical},
		{"three failures", failed, 0, typical + 3*3*baseline},
		{"one of them forgotten", failed, time.Minute, typical + 2*3*baseline},
		{"all forgotten", failed, time.Hour, typical},
		{"a slow one", health{latency: time.Second, sampledAt: start}, 0, time.Second},
		{"it may have recovered", health{latency: time.Second, sampledAt: start}, 10 * time.Minute, typical + 45*time.Microsecond},
		{"a fast one stays fast", health{latency: time.Millisecond, sampledAt: start}, time.Hour, time.Millisecond},
		{"the penalty is bounded", health{consecutive: 100_000, failedAt: start}, 0, typical + 10*time.Second},
	} {
		got := c.h.estimate(typical, baseline, start.Add(c.at))
		if d := got - c.want; d < -10*time.Microsecond || d > 10*time.Microsecond {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	failed.success(time.Millisecond, 0.2, start)
	if got := failed.estimate(typical, baseline, start); got != time.Millisecond {
		t.Errorf("after a success: %v", got)
	}
}

func TestHealthHasFiveNames(t *testing.T) {
	r := newRig(t, config()).update(relays(8))
	id := r.status().Primaries[0]
	want(t, "at first", r.peer(id).Health, Unknown)
	r.to(id, selection.Success, time.Millisecond)
	want(t, "after an answer", r.peer(id).Health, Healthy)
	r.to(id, selection.Failure, 0)
	want(t, "after a failure", r.peer(id).Health, Degraded)
	r.wait(time.Minute)
	r.to(id, selection.Success, time.Millisecond)
	want(t, "a minute later", r.peer(id).Health, Healthy)
	r.wait(time.Minute)
	for range 4 {
		r.to(id, selection.Failure, 0)
	}
	want(t, "after four failures", r.peer(id).Health, Out)

	alone := newRig(t, config()).update(relays(1))
	for range 4 {
		alone.to("r1", selection.Failure, 0)
	}
	want(t, "where none could take over", alone.peer("r1").Health, Unhealthy)
}
