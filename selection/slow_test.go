package selection

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

// trickle sends ten requests per second to each of ten endpoints, whatever their
// scores, of which those named first take the given time, all others 20 ms.
func (r *rig) trickle(during, took time.Duration, slow int) {
	r.t.Helper()
	for range during / (250 * ms) {
		for i := range 10 {
			one := 20 * ms
			if i < slow {
				one = took
			}
			for range 3 {
				p := r.pickFrom(fmt.Sprintf("w%d", i))
				p.start = r.now - Instant(one)
				r.Done(p, r.now, Success)
			}
		}
		r.wait(250 * ms)
		r.Refresh(r.now)
	}
}

func TestAnEndpointThatStaysSlowIsEvicted(t *testing.T) {
	r := newRig(t, DefaultConfig())
	r.update(rangeOf(10))
	r.trickle(5*time.Second, 20*ms, 1)
	r.trickle(9*time.Second, 200*ms, 1)
	if got := r.stats("w0"); got.State != "active" {
		t.Fatalf("%s after 9 s: %s", got.State, got.LastReason)
	}
	r.trickle(3*time.Second, 200*ms, 1)
	got := r.stats("w0")
	if !strings.HasPrefix(got.LastReason, "latency ") || !strings.Contains(got.LastReason, "the median of the range is 20ms") {
		t.Fatalf("after 12 s it is %s: %q", got.State, got.LastReason)
	}
	if n := r.inState("evicted") + r.inState("half_open"); n > 1 {
		t.Errorf("%d are out", n)
	}
	// It recovers and comes back as from any eviction.
	r.trickle(40*time.Second, 20*ms, 1)
	if got := r.stats("w0").State; got != "active" {
		t.Errorf("%s after it recovered", got)
	}
}

func TestASlowSpellIsForgivenWhenItEndsInTime(t *testing.T) {
	r := newRig(t, DefaultConfig())
	r.update(rangeOf(10))
	r.trickle(5*time.Second, 20*ms, 1)
	for range 5 {
		r.trickle(8*time.Second, 200*ms, 1)
		r.trickle(10*time.Second, 20*ms, 1)
	}
	if got := r.stats("w0").LastReason; got != "" {
		t.Error(got)
	}
}

func TestTheLatencyFactorIsRead(t *testing.T) {
	for factor, want := range map[float64]bool{0: false, 3: true, 20: false} {
		cfg := DefaultConfig()
		cfg.LatencyFactor = factor
		r := newRig(t, cfg)
		r.update(rangeOf(10))
		r.trickle(20*time.Second, 200*ms, 1)
		if got := r.stats("w0").LastReason != ""; got != want {
			t.Errorf("factor %v: 10 times slower, evicted is %v, want %v", factor, got, want)
		}
	}
}

func TestAnUnconfirmedLatencyEvictsNoEndpoint(t *testing.T) {
	r := fleet(t, 10, DefaultConfig())
	r.median(25 * ms)
	for range 2 * slowSamples {
		r.request("w0", 2*time.Second, Success)
	}
	for range 120 { // no further answer
		r.wait(250 * ms)
		r.Refresh(r.now)
	}
	if got := r.stats("w0"); got.LastReason != "" {
		t.Errorf("evicted by an old estimate: %+v", got)
	}
	r.wait(time.Minute)
	r.trickle(3*time.Second, 2*time.Second, 1) // a hundred times as slow, and then nothing
	for range 40 {
		r.wait(250 * ms)
		r.Refresh(r.now)
	}
	if got := r.stats("w0"); got.LastReason != "" {
		t.Errorf("evicted though nothing was heard for 10 s: %+v", got)
	}
	// Nor does a request without an answer: the floor of a silence is no measurement.
	p := r.pickFrom("w0")
	for range 120 {
		r.wait(250 * ms)
		r.Refresh(r.now)
	}
	if got := r.stats("w0"); got.LastReason != "" {
		t.Errorf("evicted by a silence: %+v", got)
	}
	r.Done(p, r.now, Cancelled)
}

func TestLatencyRespectsTheCapAndThePanic(t *testing.T) {
	r := newRig(t, DefaultConfig())
	r.update(rangeOf(10))
	r.trickle(11*time.Second, 200*ms, 4)
	if n := r.inState("evicted") + r.inState("half_open"); n != 3 {
		t.Errorf("%d of 10 are out, want 3", n)
	}
	r = newRig(t, DefaultConfig())
	r.update(rangeOf(10))
	for range 20 {
		r.whole.failing.Store(math.Float32bits(0.2))
		r.trickle(time.Second, 200*ms, 1)
	}
	if got := r.stats("w0").LastReason; got != "" {
		t.Errorf("evicted while the range fails: %s", got)
	}
}

func TestALatencyEvictsAnEndpointAsTheScoreSeesIt(t *testing.T) {
	r := newRig(t, DefaultConfig())
	r.update(rangeOf(10))
	r.trickle(5*time.Second, 20*ms, 1)
	for range 20 { // 4.6 times as slow, but by now relaxed
		for range 10 {
			p := r.pickFrom("w0")
			p.start = r.now - Instant(92*ms)
			r.Done(p, r.now, Success)
		}
		r.wait(900 * ms)
		r.Refresh(r.now)
	}
	if got := r.stats("w0"); got.LastReason != "" {
		t.Errorf("evicted: %s", got.LastReason)
	}
}

// Twice as slow is no reason, however long it lasts and however service times vary.
func TestEndpointsThatAreSomewhatSlowerStay(t *testing.T) {
	r := newRig(t, DefaultConfig())
	r.update(rangeOf(20))
	r.drive(load{400, 2 * time.Minute, func(id string, _ Instant) (time.Duration, ended) {
		if id == "w0" || id == "w1" || id == "w2" {
			return 5*ms + time.Duration(r.rng.ExpFloat64()*50e6), Success
		}
		return 5*ms + time.Duration(r.rng.ExpFloat64()*25e6), Success
	}})
	for _, s := range r.Stats(r.now) {
		if s.LastReason != "" {
			t.Errorf("%s was evicted: %s", s.ID, s.LastReason)
		}
	}
}

// tierTrickle is trickle for tiers, each of a latency of its own.
func (r *rig) tierTrickle(during time.Duration, took func(id string) time.Duration) {
	r.t.Helper()
	for range during / (250 * ms) {
		for i := range r.table.Load().entries {
			id := r.table.Load().entries[i].ID
			for range 3 {
				p := r.pickFrom(id)
				p.start = r.now - Instant(took(id))
				r.Done(p, r.now, Success)
			}
		}
		r.wait(250 * ms)
		r.Refresh(r.now)
	}
}

func TestABusyTierIsNotSlowNextToAnIdleOne(t *testing.T) {
	r := newRig(t, DefaultConfig())
	r.update(tiers(6, 12))
	r.tierTrickle(30*time.Second, func(id string) time.Duration {
		if id[1] == '0' {
			return 200 * ms
		}
		return 20 * ms
	})
	for _, s := range r.Stats(r.now) {
		if s.LastReason != "" {
			t.Errorf("%s was evicted: %s", s.ID, s.LastReason)
		}
	}
	r.tierTrickle(30*time.Second, func(id string) time.Duration {
		switch {
		case id == "t0-0":
			return 2 * time.Second
		case id[1] == '0':
			return 200 * ms
		}
		return 20 * ms
	})
	if got := r.stats("t0-0").LastReason; !strings.Contains(got, "the median of the tier is 200ms") {
		t.Errorf("ten times as slow as its tier: %q", got)
	}
}

func TestNoEndpointIsSlowWhileTheTierFails(t *testing.T) {
	for tier, want := range map[uint8]bool{0: false, 1: true} {
		r := newRig(t, DefaultConfig())
		r.update(tiers(6, 6))
		for range 20 {
			r.tiers[tier].failing.Store(math.Float32bits(0.2))
			r.tierTrickle(time.Second, func(id string) time.Duration {
				if id == "t0-0" {
					return 200 * ms
				}
				return 20 * ms
			})
		}
		if got := r.stats("t0-0").LastReason; (got != "") != want {
			t.Errorf("tier %d fails, and of tier 0 it is said: %q", tier, got)
		}
	}
}

func TestEvictedEndpointsAreNoMeasureOfTheirTier(t *testing.T) {
	r := newRig(t, DefaultConfig())
	r.update(tiers(12, 12))
	r.tierTrickle(5*time.Second, func(string) time.Duration { return 20 * ms })
	for i := range 7 {
		r.tiers[0].failing.Store(0)
		r.requests(4, fmt.Sprintf("t0-%d", i), 0, Failure)
	}
	if got := r.inState("evicted"); got != 7 {
		t.Fatalf("%d evicted", got)
	}
	r.tiers[0].failing.Store(0)
	for _, c := range []struct {
		tier uint8
		want time.Duration
	}{{0, 200 * ms}, {1, 20 * ms}} {
		for range 200 { // those that are left are busy
			for i := 7; i < 12; i++ {
				p := r.pickFrom(fmt.Sprintf("t0-%d", i))
				p.start = r.now - Instant(200*ms)
				r.Done(p, r.now, Success)
			}
			r.wait(100 * ms)
		}
		median, _, _ := r.tierMedian(r.table.Load(), c.tier)
		near(t, fmt.Sprintf("median of tier %d", c.tier), float64(median), float64(c.want), 0.1)
	}
}

func TestLatencyEvictsAThirdOfATierAtMost(t *testing.T) {
	r := newRig(t, DefaultConfig())
	r.update(tiers(10, 10))
	most := 0
	for range 60 {
		r.tierTrickle(500*ms, func(id string) time.Duration {
			if id < "t0-4" {
				return 200 * ms
			}
			return 20 * ms
		})
		most = max(most, 10-r.tierInState(0, "active"))
	}
	if most != 3 {
		t.Errorf("%d of 10 were out, want 3", most)
	}
}
