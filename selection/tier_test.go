package selection

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// tiers returns n endpoints in each tier: t0-0, t0-1, …
func tiers(sizes ...int) (endpoints []Endpoint[any]) {
	for tier, n := range sizes {
		for i := range n {
			endpoints = append(endpoints, Endpoint[any]{ID: fmt.Sprintf("t%d-%d", tier, i), Weight: 1, Tier: uint8(tier)})
		}
	}
	return endpoints
}

// out builds the entries of tiers, of which some are evicted.
func tierEntries(sizes, out []int) (entries []entry) {
	for _, e := range tiers(sizes...) {
		s := new(state)
		if out[e.Tier] > 0 {
			out[e.Tier]--
			s.phase.Store(uint32(evicted))
		}
		entries = append(entries, entry{Endpoint: e, state: s})
	}
	return entries
}

func TestATierSpillsWhatItsHealthyEndpointsCannotTake(t *testing.T) {
	for _, c := range []struct {
		name       string
		sizes, out []int
		factor     float64
		want       []float64
	}{
		{"all are well", []int{10, 10}, []int{0, 0}, 1.4, []float64{1, 0}},
		{"nearly three quarters are enough", []int{100, 10}, []int{28, 0}, 1.4, []float64{1, 0}},
		{"a half takes 70 %", []int{10, 10}, []int{5, 0}, 1.4, []float64{0.7, 0.3}},
		{"without overprovisioning a half takes a half", []int{10, 10}, []int{5, 0}, 1, []float64{0.5, 0.5}},
		{"the second spills, too", []int{10, 10, 10}, []int{9, 5, 0}, 1.4, []float64{0.14, 0.7, 0.16}},
		{"the nearest is gone", []int{10, 10}, []int{10, 0}, 1.4, []float64{0, 1}},
		{"together they cannot take it all", []int{10, 10}, []int{8, 9}, 1.4, []float64{2.0 / 3, 1.0 / 3}},
		{"none is healthy: by weight", []int{10, 30}, []int{10, 30}, 1.4, []float64{0.25, 0.75}},
		{"one tier", []int{3}, []int{1}, 1.4, []float64{1}},
		{"no tier is empty of sense", []int{0, 5}, []int{0, 1}, 1.4, []float64{1}},
	} {
		shares := tierShares(tierEntries(c.sizes, c.out), c.factor)
		if len(shares) != len(c.want) {
			t.Errorf("%s: %v, want %v", c.name, shares, c.want)
			continue
		}
		for i, want := range c.want {
			if !(math.Abs(shares[i].load-want) <= 1e-9) { // NaN is wrong, too
				t.Errorf("%s: tier %d gets %v, want %v", c.name, shares[i].tier, shares[i].load, want)
			}
		}
	}
}

func TestTierSharesAreAlwaysAWholeAndNearestFirst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 5).Draw(t, "tiers")
		sizes, out := make([]int, n), make([]int, n)
		healthy := 0
		for i := range n {
			sizes[i] = rapid.IntRange(1, 12).Draw(t, "size")
			out[i] = rapid.IntRange(0, sizes[i]).Draw(t, "out")
			healthy += sizes[i] - out[i]
		}
		factor := rapid.Float64Range(1, 3).Draw(t, "factor")
		shares := tierShares(tierEntries(sizes, append([]int(nil), out...)), factor)
		sum, short := 0.0, false
		for i, s := range shares {
			sum += s.load
			capacity := float64(sizes[i]-out[i]) / float64(sizes[i]) * factor
			if healthy > 0 && capacity == 0 && s.load > 0 {
				t.Fatalf("tier %d has no healthy endpoint and gets %v", i, s.load)
			}
			if short && sum > 1+1e-9 {
				t.Fatalf("%v", shares)
			}
			// A tier gets nothing only when the nearer ones take everything.
			if s.load == 0 && capacity > 0 && sum < 1-1e-6 {
				t.Fatalf("tier %d is passed over: %v", i, shares)
			}
			short = true
		}
		if math.Abs(sum-1) > 1e-9 {
			t.Fatalf("shares %v add up to %v", shares, sum)
		}
	})
}

// tierTraffic is the share of each tier in n picks, each answered after the
// latency of its tier.
func (r *rig) tierTraffic(n int) map[uint8]float64 {
	r.t.Helper()
	shares := map[uint8]float64{}
	for range n {
		p := r.pick(nil)
		tier := p.endpoint().Tier
		shares[tier] += 1 / float64(n)
		p.start = r.now - Instant(time.Duration(1+30*int(tier))*ms)
		r.wait(100 * time.Microsecond)
		r.Done(p, r.now, Success)
	}
	return shares
}

func TestAllTrafficStaysInTheNearestTierWhileItIsHealthy(t *testing.T) {
	r := newRig(t, DefaultConfig())
	r.update(tiers(6, 6))
	if got := r.tierTraffic(5000); got[1] != 0 {
		t.Errorf("traffic by tier %v", got)
	}
	// Even when it is ten times as slow as the other: distance is not judged by score.
	for i := range 6 {
		r.requests(5, fmt.Sprintf("t0-%d", i), 500*ms, Success)
	}
	if got := r.tierTraffic(100); got[1] != 0 {
		t.Errorf("traffic by tier %v", got)
	}
}

func TestWhatSpillsIsSharedOutByThoseFactorsNotByScores(t *testing.T) {
	for factor, want := range map[float64]float64{1.4: 0.7, 1.0: 0.5} {
		cfg := DefaultConfig()
		cfg.Overprovisioning = factor
		r := newRig(t, cfg)
		r.update(tiers(6, 12))
		r.settle()
		for i := range 3 {
			r.tiers[0].failing.Store(0)
			r.requests(4, fmt.Sprintf("t0-%d", i), 0, Failure)
		}
		if got := r.inState("evicted"); got != 3 {
			t.Fatalf("%d evicted", got)
		}
		// The far tier is 31 times as slow, so that a comparison would never choose it.
		near(t, fmt.Sprintf("near traffic at %v", factor), r.tierTraffic(20_000)[0], want, 0.03)
	}
}

func TestAnEvictedEndpointOfATierWithoutTrafficIsTriedAgain(t *testing.T) {
	r := newRig(t, DefaultConfig())
	r.update(tiers(6, 6))
	r.settle()
	r.requests(4, "t1-0", 0, Failure)
	if got := r.stats("t1-0").State; got != "evicted" {
		t.Fatalf("%s", got)
	}
	r.wait(30 * time.Second)
	r.Refresh(r.now)
	r.tierTraffic(2000)
	if got := r.stats("t1-0").State; got != "active" {
		t.Errorf("%s after 2000 requests", got)
	}
	if got := r.tierTraffic(2000); got[1] != 0 {
		t.Errorf("traffic by tier %v afterwards", got)
	}
}

func TestARequestThatHasTriedItsTierGoesFarther(t *testing.T) {
	r := newRig(t, DefaultConfig())
	r.update(tiers(2, 1, 1))
	var tried Exclusion
	for i, want := range []uint8{0, 0, 1, 2} {
		p := r.pick(&tried)
		if p.endpoint().Tier != want {
			t.Errorf("attempt %d went to tier %d, want %d", i, p.endpoint().Tier, want)
		}
		p.AddTo(&tried)
	}
}
