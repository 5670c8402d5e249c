package selection

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// failing answers after a millisecond; of the requests to each tier a share fails.
func (r *rig) failing(shares ...float64) func(string, Instant) (time.Duration, ended) {
	return func(id string, _ Instant) (time.Duration, ended) {
		if r.rng.Float64() < shares[id[1]-'0'] {
			return ms, Failure
		}
		return ms, Success
	}
}

// nearby is the share of the traffic that goes to tier 0.
func (t traffic) nearby() (share float64) {
	for id, s := range t.shares {
		if id[1] == '0' {
			share += s
		}
	}
	return share
}

func (r *rig) tierInState(tier int, want State) (n int) {
	for _, s := range r.Stats(r.now) {
		if int(s.ID[1]-'0') == tier && s.State == want {
			n++
		}
	}
	return n
}

func TestATierThatFailsIsLeftForOneThatIsWellAndComesBack(t *testing.T) {
	for _, rate := range []float64{20, 400} { // few requests must be enough, too
		t.Run(fmt.Sprint(rate, " per second"), func(t *testing.T) {
			r := newRig(t, DefaultConfig())
			r.update(tiers(6, 6))
			if got := r.drive(load{rate, 30 * time.Second, r.failing(0, 0)}); got.nearby() < 1-1e-9 {
				t.Fatalf("%v near while all are well", got.nearby())
			}
			r.drive(load{rate, 20 * time.Second, r.failing(1, 0)})
			if got := r.tierInState(0, "active"); got != 0 {
				t.Errorf("%d of 6 are active after 20 s of failures", got)
			}
			got := r.drive(load{rate, 20 * time.Second, r.failing(1, 0)})
			if share := float64(got.failures) / float64(got.total); share > 0.05 {
				t.Errorf("%.3f of the requests fail though the far tier is well", share)
			}
			if n := r.tierInState(1, "active"); n != 6 {
				t.Errorf("%d of 6 far ones are active", n)
			}
			r.drive(load{rate, 40 * time.Second, r.failing(0, 0)})
			if got := r.drive(load{rate, 20 * time.Second, r.failing(0, 0)}); got.nearby() < 0.99 {
				t.Errorf("%v near after it recovered", got.nearby())
			}
		})
	}
}

func TestHalfATierThatFailsIsEvictedBeyondAThird(t *testing.T) {
	r := newRig(t, DefaultConfig())
	r.update(tiers(12, 3))
	sick := func(id string, _ Instant) (time.Duration, ended) {
		if id[1] == '0' && id[3:] < "2" { // 0, 1, 10 and 11
			return ms, Failure
		}
		return ms, Success
	}
	worse := func(id string, now Instant) (time.Duration, ended) {
		if id == "t0-2" || id == "t0-3" {
			return ms, Failure
		}
		return sick(id, now)
	}
	r.drive(load{400, 20 * time.Second, sick})
	// It takes some time, because the score keeps requests away from them.
	for minute := 1; r.tierInState(0, "active") != 6; minute++ {
		if minute > 10 {
			t.Fatalf("%d of 12 active after ten minutes, 6 are sick", r.tierInState(0, "active"))
		}
		r.drive(load{400, time.Minute, worse})
	}
}

// Four failures each are enough: while another tier can take the traffic, half of a tier may
// look broken without excusing each other.
func TestHalfATierThatFailsIsEvictedAfterFourFailuresOfEach(t *testing.T) {
	for sizes, want := range map[[2]int]int{{6, 6}: 3, {6, 0}: 0} {
		r := newRig(t, DefaultConfig())
		r.update(tiers(sizes[:]...))
		r.settle()
		for i := range 4 * 6 {
			outcome := Success
			if i%6 < 3 {
				outcome = Failure
			}
			r.request(fmt.Sprintf("t0-%d", i%6), 0, outcome)
		}
		if got := r.tierInState(0, "evicted"); got != want {
			t.Errorf("near and far %v: %d evicted, want %d", sizes, got, want)
		}
	}
}

func TestATierStaysWhenTheOthersFailAlike(t *testing.T) {
	for _, share := range []float64{0.1, 0.3} {
		r := newRig(t, DefaultConfig())
		r.update(tiers(12, 12))
		for range 200 { // the failure average of the tier rises first
			r.tiers[0].count(1)
		}
		if got := r.drive(load{400, 2 * time.Minute, r.failing(share, share)}); got.nearby() < 0.99 {
			t.Errorf("%v near while a share of %v fails everywhere", got.nearby(), share)
		}
	}
}

func TestWhenAllTiersFailTwoThirdsOfOneStay(t *testing.T) {
	r := newRig(t, DefaultConfig())
	r.update(tiers(6, 6, 6))
	r.drive(load{400, 10 * time.Second, r.failing(0, 0, 0)})
	for range 60 {
		r.drive(load{400, time.Second, r.failing(1, 1, 1)})
		if tally(r.table.Load().entries).excess() {
			t.Fatal("more than a third of every tier is out")
		}
	}
	r.drive(load{400, 40 * time.Second, r.failing(0, 0, 0)})
	if got := r.drive(load{400, 20 * time.Second, r.failing(0, 0, 0)}); got.nearby() < 0.99 {
		t.Errorf("%v near after all recovered", got.nearby())
	}
}

func TestAnEvictedTierIsTakenBackWhenNoOtherIsLeft(t *testing.T) {
	r := newRig(t, DefaultConfig())
	r.update(tiers(6, 6))
	r.drive(load{400, 10 * time.Second, r.failing(0, 0)})
	r.drive(load{400, 20 * time.Second, r.failing(1, 0)})
	r.update(tiers(6, 6)) // changes nothing
	if got := r.tierInState(0, "active"); got != 0 {
		t.Fatalf("%d of 6 active", got)
	}
	r.update(tiers(6))
	if got := r.tierInState(0, "active"); got != 4 {
		t.Errorf("%d of 6 active in a range of their own, want 4", got)
	}
}

func TestAnotherTierIsKnownByEnoughRecentRequests(t *testing.T) {
	r := newRig(t, DefaultConfig())
	r.update(tiers(3, 3))
	others := func() float32 {
		r.Refresh(r.now)
		return r.tiers[0].otherShare()
	}
	if got := others(); got != unknownFailing {
		t.Errorf("%v expected of an untried tier", got)
	}
	r.requests(knownAfter-1, "t1-0", 0, Success)
	if got := others(); got != unknownFailing {
		t.Errorf("%v expected after %d successes", got, knownAfter-1)
	}
	r.request("t1-0", 0, Success)
	if got := others(); got != 0 {
		t.Errorf("%v expected after %d successes", got, knownAfter)
	}
	r.tiers[1].failing.Store(math.Float32bits(0.9))
	if got := others(); got != 0.9 {
		t.Errorf("%v expected of a tier of which 0.9 fail", got)
	}
	r.wait(time.Duration(unknownAfter))
	if got := others(); got != 0.9 {
		t.Errorf("%v expected after 30 s", got)
	}
	r.wait(ms)
	if got := others(); got != unknownFailing {
		t.Errorf("%v expected of a tier that has been silent for more than 30 s", got)
	}
	r.requests(4, "t1-0", 0, Failure)
	if got := others(); got != unknownFailing || r.stats("t1-0").State != "evicted" {
		t.Errorf("%v expected of a tier of which a third is out", got)
	}
	r.state("t1-1").phase.Store(uint32(evicted))
	if got := others(); got != 1 {
		t.Errorf("%v expected of a tier of which more is out: it is no alternative", got)
	}
}

func TestTheCapHoldsInOneOfTheTiersAndIsAThirdOfASingleOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 4).Draw(t, "tiers")
		sizes := make([]int, n)
		for i := range sizes {
			sizes[i] = rapid.IntRange(1, 9).Draw(t, "size")
		}
		entries := tierEntries(sizes, make([]int, n))
		out := make([]int, n)
		for range 30 {
			e := &entries[rapid.IntRange(0, len(entries)-1).Draw(t, "endpoint")]
			full := tally(entries).full(e.Tier)
			if n == 1 && full != (out[0]+1 > sizes[0]/3) {
				t.Fatalf("%d of %d are out, full is %v", out[0], sizes[0], full)
			}
			if !full && phase(e.state.phase.Load()) == active {
				e.state.phase.Store(uint32(evicted))
				out[e.Tier]++
			}
			kept := false
			for i := range sizes {
				kept = kept || out[i] <= sizes[i]/3
			}
			if !kept || tally(entries).excess() {
				t.Fatalf("%v of %v are out", out, sizes)
			}
		}
	})
}
