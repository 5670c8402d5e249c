package selection

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
)

// limited are endpoints of these limits: w0, w1, …
func limited(refuses bool, limits ...int) []Endpoint[any] {
	endpoints := rangeOf(len(limits))
	for i := range endpoints {
		endpoints[i].Limit, endpoints[i].Refuses = limits[i], refuses
	}
	return endpoints
}

func inFlight(b *Balancer[any], now Instant) (out []int) {
	for _, s := range b.Stats(now) {
		out = append(out, s.InFlight)
	}
	return out
}

func TestAnEndpointWithoutRoomIsPassedOverAsLongAsAnotherHasSome(t *testing.T) {
	for _, refuses := range []bool{false, true} {
		for name, endpoints := range map[string][]Endpoint[any]{
			"two":                limited(refuses, 1, 0),
			"many":               limited(refuses, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1),
			"a dominant one":     {{ID: "w0", Weight: 9, Limit: 1, Refuses: refuses}, {ID: "w1", Weight: 1}},
			"by weight":          {{ID: "w0", Weight: 3, Limit: 1, Refuses: refuses}, {ID: "w1", Weight: 2}, {ID: "w2", Weight: 1, Limit: 1, Refuses: refuses}},
			"the other near":     {{ID: "w0", Weight: 1, Limit: 1, Refuses: refuses}, {ID: "w1", Weight: 1, Tier: 1}},
			"one without weight": {{ID: "w0", Weight: 1, Limit: 1, Refuses: refuses}, {ID: "w1"}},
		} {
			r := newRig(t, DefaultConfig())
			r.update(endpoints)
			r.settle()
			for range 40 {
				r.pick(nil)
			}
			total := 0
			for i, n := range inFlight(r.Balancer, r.now) {
				total += n
				if limit := endpoints[i].Limit; limit > 0 && n > limit {
					t.Errorf("%s, refuses %t: %d in flight at w%d of limit %d", name, refuses, n, i, limit)
				}
			}
			if total != 40 {
				t.Errorf("%s, refuses %t: %d of 40 in flight", name, refuses, total)
			}
		}
	}
}

func TestALimitThatTheEndpointDoesNotKeepItselfIsNeverExceeded(t *testing.T) {
	r := newRig(t, DefaultConfig())
	r.rng, r.rand = nil, rand.Uint64 // which may be drawn from by many
	r.update(limited(false, 3, 1, 2))
	r.settle()
	var wg sync.WaitGroup
	tickets := make(chan Pick[any], 200)
	for i := range 200 {
		wg.Go(func() {
			p, err := r.Pick(r.now, nil)
			if i%2 == 1 {
				p, err = r.Take(fmt.Sprintf("w%d", i%3), r.now)
			}
			switch {
			case err == nil:
				tickets <- p
			case !errors.Is(err, ErrFull) || !errors.Is(err, ErrNoEndpoint):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for i, n := range inFlight(r.Balancer, r.now) {
		if limit := []int{3, 1, 2}[i]; n > limit {
			t.Errorf("%d in flight at w%d of limit %d", n, i, limit)
		}
	}
	r.Done(<-tickets, r.now, Success)
	if _, err := r.Pick(r.now, nil); err != nil {
		t.Errorf("with a free place: %v", err)
	}
	// An endpoint that was tried has another reason than a full one.
	lone := newRig(t, DefaultConfig())
	lone.update(limited(false, 1))
	var tried Exclusion
	lone.pick(nil).AddTo(&tried)
	if _, err := lone.Pick(lone.now, &tried); err == nil || errors.Is(err, ErrFull) {
		t.Errorf("the only endpoint was tried: %v", err)
	}
}

func TestWhereNoneHasRoomTheLeastFullThatRefusesByItselfIsAsked(t *testing.T) {
	r := newRig(t, DefaultConfig())
	r.update(append(limited(true, 4, 1, 2), Endpoint[any]{ID: "w3", Weight: 1, Limit: 1}))
	r.settle()
	for range 8 { // takes all that there is
		r.pick(nil)
	}
	for range 7 { // as many again as those that refuse have
		r.pick(nil)
	}
	if got := inFlight(r.Balancer, r.now); !slices.Equal(got, []int{8, 2, 4, 1}) {
		t.Errorf("in flight %v: want twice the limits, but for the one that does not refuse", got)
	}
}

func TestAnEndpointThatRefusedIsTakenForFullTwiceAsLongEachTime(t *testing.T) {
	r := newRig(t, DefaultConfig())
	r.update(append(limited(true, 5), Endpoint[any]{ID: "w1", Weight: 1}))
	r.settle()
	refused := func() { r.Done(r.pickFrom("w0"), r.now, Full.with(9)) }
	held := func() (d time.Duration) {
		for r.room("w0") == refusedLately {
			if p := r.pick(nil); p.ID() == "w0" {
				t.Fatalf("picked after %v, although it refused", d)
			} else {
				r.Done(p, r.now, Cancelled)
			}
			r.wait(5 * ms)
			if d += 5 * ms; d%(250*ms) == 0 {
				r.Refresh(r.now)
			}
		}
		return d
	}
	for i, want := range []time.Duration{50 * ms, 100 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 3200 * ms, 6400 * ms, 10 * time.Second, 10 * time.Second} {
		refused()
		refused() // at the same time: the same refusal
		near(t, fmt.Sprintf("time after refusal %d", i), float64(held()), float64(want), 0.15)
	}
	p := r.pickFrom("w0")
	refused()
	if r.room("w0") != refusedLately {
		t.Fatal("it refused and has room")
	}
	r.Done(p, r.now, Success)
	if got := r.room("w0"); got != hasRoom {
		t.Errorf("room %d after the end of a request of ours, which made some", got)
	}
	refused()
	near(t, "time after the first refusal since", float64(held()), float64(50*ms), 0.15)
	if s := r.stats("w0"); s.Failures != 0 || s.State != "active" || s.ErrorRate != 0 {
		t.Errorf("refusals are held against it: %+v", s)
	}
}

func TestWhereAllHaveJustRefusedARequestAsksOneAndNoMore(t *testing.T) {
	r := newRig(t, DefaultConfig())
	r.update(limited(true, 2, 2, 2))
	r.settle()
	for i := range 3 {
		r.Done(r.pickFrom(fmt.Sprintf("w%d", i)), r.now, Full)
	}
	var tried Exclusion
	p := r.pick(&tried)
	r.Done(p, r.now, Full)
	p.AddTo(&tried)
	if _, err := r.Pick(r.now, &tried); !errors.Is(err, ErrFull) {
		t.Errorf("the second attempt: %v", err)
	}
}

func TestAnEvictedEndpointIsAskedAfterOneThatOnlyHasItsShare(t *testing.T) {
	r := fleet(t, 3, DefaultConfig())
	r.requests(4, "w0", 0, Failure)
	if got := r.stats("w0").State; got != "evicted" {
		t.Fatal(got)
	}
	endpoints := limited(true, 5, 1, 1)
	r.update(endpoints)
	for range 6 {
		if p := r.pick(nil); p.ID() == "w0" {
			t.Fatal("an evicted endpoint got a request that others could still refuse")
		}
	}
	endpoints[1].Refuses, endpoints[2].Refuses = false, false
	r.update(endpoints)
	if p := r.pick(nil); p.ID() != "w0" {
		t.Errorf("%s got a request beyond its limit", p.ID())
	}
}

func TestAPickReportsThatTheOtherHadNoRoom(t *testing.T) {
	r := newRig(t, DefaultConfig())
	r.update(limited(true, 1, 0))
	r.settle()
	r.pickFrom("w0")
	d, err := r.Explain(r.now, nil, nil)
	if want := `"w0", the other of the pair drawn, is full`; err != nil || d.Winner.ID != "w1" || d.Reason != want {
		t.Errorf("%+v, %v", d, err)
	}
}

// A worker that drains and comes back keeps its sessions.
func TestRequestsOfAnEndpointThatLeftCountWhenItComesBack(t *testing.T) {
	r := newRig(t, DefaultConfig())
	r.update(limited(false, 2))
	held := []Pick[any]{r.pick(nil), r.pick(nil)}
	for range 3 {
		r.update(nil)
		r.update(limited(false, 2))
		if p, err := r.Pick(r.now, nil); !errors.Is(err, ErrFull) {
			t.Fatalf("a third request for two places: %v (%v)", p, err)
		}
	}
	r.update(nil)
	r.Done(held[0], r.now, Success)
	r.update(limited(false, 2))
	r.Done(held[1], r.now, Success)
	if got := r.stats("w0"); got.InFlight != 0 || got.Picks != 2 {
		t.Errorf("after all have ended: %+v", got)
	}
	r.update(nil)
	r.update(limited(false, 2))
	if got := r.stats("w0"); got.Picks != 0 || len(r.departed) > 0 {
		t.Errorf("without a request in flight it comes back as %+v, want a clean start", got)
	}
}

// Draws of two find the one with room by chance, and a scan always.
func TestTheOneEndpointWithRoomIsFoundBesideManyThatRefuse(t *testing.T) {
	r := newRig(t, DefaultConfig())
	endpoints := limited(true, slices.Repeat([]int{1}, 30)...)
	r.update(endpoints)
	r.settle()
	for i := range endpoints {
		if i != 17 {
			r.pickFrom(endpoints[i].ID)
		}
	}
	for range 20 {
		p := r.pick(nil)
		if p.ID() != "w17" {
			t.Fatalf("%s got a request although it is full", p.ID())
		}
		r.Done(p, r.now, Cancelled)
	}
}

func TestStatisticsShowWhichEndpointsAreFull(t *testing.T) {
	r := newRig(t, DefaultConfig())
	r.update(limited(false, 1, 1))
	r.pickFrom("w0")
	for id, full := range map[string]bool{"w0": true, "w1": false} {
		if got := r.stats(id); got.Full != full || got.Usable == full {
			t.Errorf("%s: full %t, usable %t", id, got.Full, got.Usable)
		}
	}
}

func TestTheFailuresOfAnEndpointThatIsAwayForDaysGrowOld(t *testing.T) {
	r := newRig(t, DefaultConfig())
	r.update(rangeOf(2))
	held := r.pickFrom("w0")
	r.requests(2, "w0", 0, Failure)
	r.update(rangeOf(2)[1:])
	for range 4 * 24 {
		r.wait(time.Hour)
		r.Refresh(r.now)
	}
	r.update(rangeOf(2))
	if got := r.stats("w0"); got.SuccessAverage < 0.99 || got.ErrorRate > 0.01 {
		t.Errorf("after four days: %+v", got)
	}
	r.Done(held, r.now, Success)
}

// A tier that takes what a nearer one spills may have one endpoint, and that may be full.
func TestAFullEndpointOfAFartherTierIsPassedOver(t *testing.T) {
	for _, full := range []string{"at its limit", "has refused"} {
		r := newRig(t, DefaultConfig())
		endpoints := tiers(6, 1)
		endpoints[6].Limit, endpoints[6].Refuses = 1, full == "has refused"
		r.update(endpoints)
		r.settle()
		for i := range 4 {
			r.tiers[0].failing.Store(0)
			r.requests(4, fmt.Sprintf("t0-%d", i), 0, Failure)
		}
		if n, spills := r.inState("evicted"), len(r.table.Load().spill); n != 4 || spills != 1 {
			t.Fatalf("%d evicted, %d tiers take what the nearest spills", n, spills)
		}
		if p := r.pickFrom("t1-0"); full == "has refused" {
			r.Done(p, r.now, Full.with(9))
		}
		for range 64 {
			if d, err := r.Explain(r.now, nil, nil); err != nil || d.Winner.ID == "t1-0" {
				t.Fatalf("%s: explained as the winner: %q, error %v", full, d.Reason, err)
			}
			var d Decision
			p, err := r.PickExplained(r.now, nil, &d)
			if err != nil || p.entry == nil || p.ID() == "t1-0" || d.Winner.ID != p.ID() {
				t.Fatalf("%s: picked %+v, %+v, error %v", full, p.ticket, d, err)
			}
			r.Done(p, r.now, Cancelled)
			if p, err = r.Pick(r.now, nil); err != nil || p.entry == nil || p.ID() == "t1-0" {
				t.Fatalf("%s: picked %+v, error %v", full, p.ticket, err)
			}
			r.Done(p, r.now, Cancelled)
		}
	}
}
