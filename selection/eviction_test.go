package selection

import (
	"fmt"
	"testing"
	"time"
)

// fleet returns a rig with n settled endpoints that have answered once each.
func fleet(t *testing.T, n int, cfg Config) *rig {
	r := newRig(t, cfg)
	r.update(rangeOf(n))
	r.settle()
	for i := range n {
		r.request(fmt.Sprintf("w%d", i), 25*ms, Success)
	}
	r.Refresh(r.now)
	return r
}

// othersAnswer brings n requests to each endpoint but w0.
func (r *rig) othersAnswer(n int) {
	for _, e := range r.table.Load().entries {
		if e.ID != "w0" {
			r.requests(n, e.ID, 0, Success)
		}
	}
}

func (r *rig) inState(want State) (n int) {
	for _, s := range r.Stats(r.now) {
		if s.State == want {
			n++
		}
	}
	return n
}

// HS-F2: "more than 3" means at the fourth.
func TestTheFourthFailureInARowEvicts(t *testing.T) {
	r := fleet(t, 10, DefaultConfig())
	r.requests(3, "w0", ms, Failure)
	if got := r.stats("w0").State; got != "active" {
		t.Fatalf("%s after three failures", got)
	}
	r.request("w0", ms, Success)
	r.wait(time.Minute) // the share of failures among recent requests is a rule of its own
	r.requests(3, "w0", ms, Failure)
	if got := r.stats("w0").State; got != "active" {
		t.Fatalf("%s though a success broke the row", got)
	}
	r.request("w0", ms, Failure)
	got := r.stats("w0")
	if got.State != "evicted" || got.LastReason != "4 consecutive failures" || got.ConsecutiveFailures != 4 {
		t.Fatalf("after the fourth: %+v", got)
	}
	if shares := r.idleShares(5000, nil); shares["w0"] != 0 {
		t.Errorf("an evicted endpoint was picked: %v", shares["w0"])
	}
}

func TestTheLimitOfConsecutiveFailuresIsRead(t *testing.T) {
	cfg := DefaultConfig()
	cfg.ConsecutiveFailures, cfg.ErrorRateThreshold = 1, 0.9
	r := fleet(t, 10, cfg)
	r.requests(2, "w0", ms, Failure)
	if got := r.stats("w0").State; got != "evicted" {
		t.Errorf("%s after two failures with a limit of one", got)
	}
}

func TestFailuresInARowDoNotEvictWhileTheWholeRangeFails(t *testing.T) {
	r := fleet(t, 30, DefaultConfig())
	for i := range 30 { // three each bring the range to more than 5 %
		r.requests(3, fmt.Sprintf("w%d", i), ms, Failure)
	}
	r.requests(3, "w0", ms, Failure)
	if got := r.inState("evicted"); got != 0 {
		t.Errorf("%d evicted while everything fails", got)
	}
}

func TestNeverMoreThanAThirdIsEvicted(t *testing.T) {
	for n, want := range map[int]int{1: 0, 2: 0, 3: 1, 5: 1, 6: 2, 10: 3} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			r := fleet(t, n, DefaultConfig())
			for i := range n {
				r.requests(4, fmt.Sprintf("w%d", i), 0, Failure)
			}
			if got := r.inState("evicted"); got != want {
				t.Errorf("%d of %d evicted, want %d", got, n, want)
			}
		})
	}
}

// Two failures that end at the same time were both allowed to evict, by the table before.
func TestNoMoreIsEvictedWhenSeveralRequestsFailAtTheSameTime(t *testing.T) {
	r := fleet(t, 3, DefaultConfig())
	entries := r.table.Load().entries
	for i := range entries {
		r.evict(&entries[i], r.now, forFailuresInARow, "")
	}
	if got := r.inState("evicted"); got != 1 {
		t.Errorf("%d of 3 evicted, want 1", got)
	}
}

func TestEndpointsOfWeightZeroAreNeitherEvictedNorCounted(t *testing.T) {
	r := newRig(t, DefaultConfig())
	endpoints := rangeOf(5)
	endpoints[0].Weight, endpoints[1].Weight, endpoints[2].Weight = 0, 0, 0
	r.update(endpoints)
	for i := range 5 { // two carry traffic: a third of them is none
		r.requests(4, fmt.Sprintf("w%d", i), 0, Failure)
	}
	if got := r.inState("evicted"); got != 0 {
		t.Errorf("%d evicted", got)
	}
	endpoints[2].Weight = 1
	r.update(endpoints)
	r.request("w0", 0, Failure)
	if got := r.stats("w0").State; got != "active" {
		t.Errorf("an endpoint of weight 0 is %s", got)
	}
}

// Workers of a canary are such endpoints. Standbys next to them have no part in it.
func TestEndpointsThatAreApartAreEvictedAmongThemselves(t *testing.T) {
	for _, tiers := range []int{1, 2} {
		r := newRig(t, DefaultConfig())
		endpoints := rangeOf(9)
		for i := range endpoints {
			switch {
			case i < 3:
				endpoints[i].Weight, endpoints[i].Apart = 0, true
			case i > 4:
				endpoints[i].Weight = 0 // standbys
			}
		}
		endpoints[2].Tier, endpoints[4].Tier = uint8(tiers-1), uint8(tiers-1)
		r.update(endpoints)
		r.settle()
		r.requests(4, "w4", 0, Failure) // it is no third of the two others, of its tier, or of the tiers
		r.requests(4, "w0", 0, Failure)
		if got := r.stats("w0").State; got != "evicted" {
			t.Errorf("%d tiers: the one of three that fails is %s", tiers, got)
		}
		if tiers == 1 && r.stats("w4").State != "active" {
			t.Error("one of two is evicted")
		}
		r.requests(4, "w1", 0, Failure)
		if got := r.stats("w1").State; got != "active" {
			t.Errorf("%d tiers: the second of three is %s", tiers, got)
		}
		r.requests(8, "w5", 0, Failure)
		if got := r.stats("w5").State; got != "active" {
			t.Errorf("%d tiers: a standby is %s", tiers, got)
		}
		endpoints[2].Weight, endpoints[2].Apart = 1, false
		r.update(endpoints)
		if got := r.stats("w0").State; got != "active" {
			t.Errorf("%d tiers: one of two is %s", tiers, got)
		}
	}
}

func TestHalfOpenEndpointsCountAsEvicted(t *testing.T) {
	r := fleet(t, 3, DefaultConfig())
	r.requests(4, "w0", 0, Failure)
	r.wait(30 * time.Second)
	r.Refresh(r.now)
	r.requests(4, "w1", 0, Failure)
	if got := r.stats("w1").State; got != "active" {
		t.Errorf("second of three is %s while the first is half-open", got)
	}
}

func TestAShrinkingRangeTakesEvictedEndpointsBack(t *testing.T) {
	r := fleet(t, 9, DefaultConfig())
	for i := range 3 {
		r.requests(4, fmt.Sprintf("w%d", i), 0, Failure)
	}
	r.update(rangeOf(3))
	if got := r.inState("evicted"); got != 1 {
		t.Errorf("%d of 3 evicted, want 1", got)
	}
}

// evictedFor returns how long w0 stays evicted, in steps of 10 ms.
func (r *rig) evictedFor() time.Duration {
	start := r.now
	for r.stats("w0").State == "evicted" {
		r.wait(10 * ms)
		r.Refresh(r.now)
	}
	return time.Duration(r.now - start)
}

func TestEachEvictionInARowDoublesUpToTheMaximum(t *testing.T) {
	cfg := DefaultConfig()
	cfg.MaxEviction = 20 * time.Second // a setting that is read
	r := fleet(t, 10, cfg)
	r.requests(4, "w0", 0, Failure)
	jitter := map[time.Duration]bool{}
	for k := 1; k <= 20; k++ {
		longest := min(20*time.Second, time.Second<<k)
		out := r.evictedFor()
		if out < longest/2 || out > longest+10*ms {
			t.Fatalf("eviction %d lasted %v, want %v to %v", k, out, longest/2, longest)
		}
		jitter[out] = true
		r.request("w0", ms, Failure) // the half-open try fails
	}
	if len(jitter) < 10 {
		t.Errorf("only %d different lengths in 20 evictions: no jitter", len(jitter))
	}
	r.evictedFor()
	r.request("w0", ms, Success)
	r.requests(4, "w0", 0, Failure)
	if out := r.evictedFor(); out < 10*time.Second {
		t.Errorf("evicted for %v right after coming back, want the count to go on", out)
	}
	r.request("w0", ms, Success)
	r.wait(time.Minute)
	r.requests(4, "w0", 0, Failure)
	if out := r.evictedFor(); out > 2*time.Second+10*ms {
		t.Errorf("evicted for %v after a good minute, want a fresh start", out)
	}
}

func TestHalfOpenAdmitsOneRequestAtATime(t *testing.T) {
	r := fleet(t, 5, DefaultConfig())
	r.requests(4, "w0", 0, Failure)
	r.evictedFor()
	if got := r.stats("w0").State; got != "half_open" {
		t.Fatalf("state is %s", got)
	}
	for _, end := range []ended{Cancelled, Shed, Cancelled} {
		var probe Pick[any]
		for range 2000 {
			p := r.pick(nil)
			if p.ID() != "w0" {
				r.Done(p, r.now, Success)
				continue
			}
			if probe.entry != nil {
				t.Fatal("two requests at a time")
			}
			probe = p
		}
		if probe.entry == nil {
			t.Fatal("a half-open endpoint was never chosen")
		}
		r.Done(probe, r.now, end) // neither proves anything
		if got := r.stats("w0").State; got != "half_open" {
			t.Fatalf("state is %s after an unproven try", got)
		}
	}
}

func TestATryWithoutAnEndKeepsAnEndpointOutNoLongerThanAnEviction(t *testing.T) {
	try := func(r *rig) (got Pick[any], found bool) {
		for range 2000 {
			p := r.pick(nil)
			if p.ID() == "w0" {
				return p, true
			}
			r.Done(p, r.now, Success)
		}
		return got, false
	}
	for _, end := range []struct {
		of   Outcome
		want State
	}{{Success, Active}, {Failure, Evicted}, {Cancelled, HalfOpen}} {
		r := fleet(t, 5, DefaultConfig())
		r.requests(4, "w0", 0, Failure)
		r.evictedFor()
		stream, _ := try(r)
		r.wait(r.cfg.MaxEviction - 10*ms)
		r.Refresh(r.now)
		if _, found := try(r); found || r.stats("w0").Usable {
			t.Fatal("a second try while the first may still be answered")
		}
		r.wait(20 * ms)
		r.Refresh(r.now)
		if !r.stats("w0").Usable {
			t.Error("not usable, though its try has lasted as long as an eviction")
		}
		if _, found := try(r); !found {
			t.Fatal("never tried again, because of one stream")
		}
		r.Done(stream, r.now, end.of)
		if got := r.stats("w0").State; got != end.want {
			t.Errorf("%s after the first try ended with %v, want %s", got, end.of, end.want)
		}
		if _, found := try(r); end.of == Cancelled && found {
			t.Error("a third try while the second is out: the first ended the claim of the second")
		}
	}
}

func TestASuccessBringsAHalfOpenEndpointBackOnTheRamp(t *testing.T) {
	r := fleet(t, 5, DefaultConfig())
	r.requests(4, "w0", 0, Failure)
	late := r.pickFrom("w0")
	r.evictedFor()
	late.start = r.now - Instant(25*ms)
	r.Done(late, r.now, Success)
	if got := r.stats("w0").State; got != "half_open" {
		t.Fatalf("a request from before the eviction made it %s", got)
	}
	r.request("w0", 25*ms, Success)
	got := r.stats("w0")
	if got.State != "active" || got.SuccessAverage != 1 || got.ErrorRate != 0 || got.ConsecutiveFailures != 0 {
		t.Fatalf("came back as %+v", got)
	}
	r.median(25 * ms)
	near(t, "score at the foot of the ramp", r.score("w0"), 10*r.score("w1"), 0.02)
	r.wait(3 * time.Second)
	near(t, "score at its end", r.score("w0"), r.score("w1"), 0.02)
}

func TestAFailingEndpointThatRecoversRegainsItsShare(t *testing.T) {
	r := fleet(t, 10, DefaultConfig())
	broken := true
	answer := func(id string, _ Instant) (time.Duration, ended) {
		if id == "w0" && broken {
			return ms, Failure
		}
		return 25 * ms, Success.with(1)
	}
	r.drive(load{200, 10 * time.Second, answer})
	broken = false
	r.drive(load{200, 20 * time.Second, answer})
	if got := r.drive(load{200, 20 * time.Second, answer}).shares["w0"]; got < 0.07 {
		t.Errorf("share after recovery is %v, fair is 0.1", got)
	}
}

func TestEvictedEndpointsAreTheLastResort(t *testing.T) {
	r := fleet(t, 3, DefaultConfig())
	r.requests(4, "w0", 0, Failure)
	var tried Exclusion
	r.pickFrom("w1").AddTo(&tried)
	for range 100 {
		if p := r.pick(&tried); p.ID() != "w2" {
			t.Fatalf("picked %q while w2 was left", p.ID())
		}
	}
	r.pickFrom("w2").AddTo(&tried)
	if p := r.pick(&tried); p.ID() != "w0" {
		t.Errorf("picked %q", p.ID())
	}
}

func TestBackgroundFailuresEvictNoEndpoint(t *testing.T) {
	r := fleet(t, 20, DefaultConfig())
	most := 0
	r.drive(load{400, 60 * time.Second, func(string, Instant) (time.Duration, ended) {
		most = max(most, r.inState("evicted"))
		if r.rng.Float64() < 0.01 {
			return 25 * ms, Failure
		}
		return 25 * ms, Success
	}})
	if most != 0 {
		t.Errorf("%d healthy endpoints evicted at 1 %% background failures", most)
	}
}

func TestASureFailureShareEvictsWithoutFailuresInARow(t *testing.T) {
	alternate := func(cfg Config) EndpointStats {
		r := fleet(t, 10, cfg)
		for range 20 {
			r.othersAnswer(1)
			r.request("w0", ms, Failure)
			r.requests(2, "w0", ms, Success)
		}
		return r.stats("w0")
	}
	if got := alternate(DefaultConfig()); got.State != "evicted" || got.LastReason == "" {
		t.Errorf("a third of the requests fail: %+v", got)
	}
	cfg := DefaultConfig()
	cfg.ErrorRateThreshold = 0.5
	if got := alternate(cfg); got.State != "active" {
		t.Errorf("%s with a threshold of a half", got.State)
	}
}

func TestAFewRequestsProveNothing(t *testing.T) {
	r := fleet(t, 10, DefaultConfig())
	r.wait(time.Minute) // the counts have decayed
	r.requests(2, "w0", ms, Failure)
	r.request("w0", ms, Success)
	r.request("w0", ms, Failure)
	if got := r.stats("w0").State; got != "active" {
		t.Errorf("%s after 3 failures of 4 requests", got)
	}
}

func TestNoEndpointIsEvictedWhenAllFailAlike(t *testing.T) {
	for _, share := range []float64{0.1, 0.4, 0.9, 1} {
		r := fleet(t, 20, DefaultConfig())
		evictions := 0
		r.cfg.OnEvict = func(EvictionCause) { evictions++ }
		r.drive(load{400, time.Minute, func(string, Instant) (time.Duration, ended) {
			if r.rng.Float64() < share {
				return 25 * ms, Failure
			}
			return 25 * ms, Success
		}})
		if evictions > 0 {
			t.Errorf("%d evictions while a share of %v fails everywhere", evictions, share)
		}
	}
}

// Exactly as many endpoints fail as may be evicted, from the start or after a good minute.
func TestAThirdThatAlwaysFailsIsEvictedAfterAFewFailuresOfEach(t *testing.T) {
	for _, c := range []struct {
		n, bad int
		rate   float64
	}{{3, 1, 5}, {6, 2, 5}, {6, 2, 15}, {6, 2, 400}, {30, 10, 100}, {30, 10, 2000}} {
		for _, warm := range []bool{false, true} {
			r := newRig(t, DefaultConfig())
			r.update(rangeOf(c.n))
			broken := map[string]bool{}
			answer := func(id string, _ Instant) (time.Duration, ended) {
				if broken[id] {
					return ms, Failure
				}
				return 5 * ms, Success
			}
			if warm {
				r.drive(load{c.rate, time.Minute, answer})
			}
			for i := range c.bad {
				broken[fmt.Sprintf("w%d", i)] = true
			}
			failures, seconds := 0, 0
			for ; r.inState("active") > c.n-c.bad && seconds < 300; seconds++ {
				failures += r.drive(load{c.rate, time.Second, answer}).failures
			}
			if failures > 10*c.bad || seconds == 300 {
				t.Errorf("%+v, warm %t: %d active after %d failures in %d s", c, warm, r.inState("active"), failures, seconds)
			}
		}
	}
}

// The others of an endpoint excuse it only while they fail as well, whatever the mean is.
func TestNoEndpointIsEvictedWhenAllBeginToFailTogether(t *testing.T) {
	for _, rate := range []float64{20, 400, 4000} {
		r := newRig(t, DefaultConfig())
		r.update(rangeOf(20))
		r.drive(load{rate, 20 * time.Second, func(string, Instant) (time.Duration, ended) { return 5 * ms, Success }})
		for range 50 {
			r.drive(load{rate, 200 * ms, func(string, Instant) (time.Duration, ended) { return 5 * ms, Failure }})
			if got := r.inState("active"); got < 20 {
				t.Fatalf("at %v requests/s %d of 20 active", rate, got)
			}
		}
	}
}
