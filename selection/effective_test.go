package selection

import (
	"container/heap"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func (r *rig) updateRange(n, floor int) {
	r.t.Helper()
	if err := r.UpdateRange(Range[any]{Endpoints: rangeOf(n), MinEffective: floor}, r.now); err != nil {
		r.t.Fatal(err)
	}
}

// used drives traffic and returns how many endpoints of the range, from the first
// on, got some in its last second.
func (r *rig) used(rate float64, during time.Duration) (n int) {
	r.t.Helper()
	answer := func(string, Instant) (time.Duration, ended) { return 5 * ms, Success }
	if during > time.Second {
		r.drive(load{rate, during - time.Second, answer})
	}
	r.drive(load{rate, time.Second, answer})
	for i, routed := range r.table.Load().routed {
		if routed {
			n = i + 1
		}
	}
	if got := len(r.table.Load().near.drawn); got != n {
		r.t.Errorf("%d candidates, the last of them is number %d of the range", got, n)
	}
	return n
}

func TestALittleTrafficGoesToAPrefixOfTheRange(t *testing.T) {
	for _, c := range []struct {
		rate      float64
		n, floor  int
		low, high int
	}{
		{0.2, 30, 1, 3, 3},    // never fewer than 3
		{0.2, 30, 8, 8, 8},    // nor than the floor
		{0.2, 2, 1, 2, 2},     // nor more than there are
		{10, 30, 1, 10, 18},   // one a second each, or nearly
		{1000, 30, 1, 30, 30}, // enough for all
		{0.2, 30, 0, 30, 30},  // the floor is unknown
		{0.2, 30, 50, 30, 30}, // a floor beyond the range
	} {
		r := newRig(t, DefaultConfig())
		r.updateRange(c.n, c.floor)
		if got := r.used(c.rate, time.Minute); got < c.low || got > c.high {
			t.Errorf("%+v: %d endpoints are used", c, got)
		}
	}
}

func TestTheEndpointRateIsRead(t *testing.T) {
	used := func(rate float64) int {
		cfg := DefaultConfig()
		cfg.EndpointRate = rate
		r := newRig(t, cfg)
		r.updateRange(40, 1)
		return r.used(10, time.Minute)
	}
	if off, one, four := used(0), used(1), used(4); off != 40 || one < 10 || one > 18 || four != 3 && four != 4 && four != 5 {
		t.Errorf("used at 10 requests/s: %d with it off, %d at 1, %d at 4", off, one, four)
	}
}

func TestTheRangeWidensImmediatelyAndNarrowsLater(t *testing.T) {
	r := newRig(t, DefaultConfig())
	r.updateRange(40, 1)
	if got := r.used(5, time.Second); got != 40 {
		t.Errorf("%d are used before the rate is known", got)
	}
	narrow := r.used(5, time.Minute)
	if narrow > 12 {
		t.Fatalf("%d are used at 5 requests/s", narrow)
	}
	if got := r.used(500, 2*time.Second); got != 40 {
		t.Errorf("%d are used after 2 s at 500 requests/s", got)
	}
	if got := r.used(5, 8*time.Second); got != 40 {
		t.Errorf("%d are used 8 s later", got)
	}
	if got := r.used(5, time.Minute); got > 12 {
		t.Errorf("%d are used a minute later", got)
	}
}

func TestTheEffectiveRangeIsSteadyWhileTheRateIs(t *testing.T) {
	r := newRig(t, DefaultConfig())
	r.updateRange(60, 1)
	r.used(20, time.Minute)
	changes, last := 0, r.table.Load().shape
	for range 5 * 60 {
		r.used(20, time.Second)
		if s := r.table.Load().shape; s != last {
			changes, last = changes+1, s
		}
	}
	if changes > 10 {
		t.Errorf("changed %d times in five minutes of the same traffic", changes)
	}
}

func TestAnEndpointEvictedWithinThePrefixIsReplacedByTheNext(t *testing.T) {
	r := newRig(t, DefaultConfig())
	r.updateRange(12, 4)
	r.used(0.2, time.Minute)
	r.requests(4, "w1", 0, Failure)
	shares := r.idleShares(2000, nil)
	if shares["w1"] != 0 || len(shares) != 4 || shares["w4"] == 0 {
		t.Errorf("traffic goes to %v", shares)
	}
	r.flow(r.table.Load()) // those requests must not widen it
	r.wait(30 * time.Second)
	r.Refresh(r.now)
	r.request("w1", ms, Success)
	r.settle()
	if shares := r.idleShares(2000, nil); shares["w1"] == 0 || shares["w4"] != 0 {
		t.Errorf("after it came back traffic goes to %v", shares)
	}
}

func TestAnEndpointEvictedBeyondThePrefixIsTriedAgain(t *testing.T) {
	r := newRig(t, DefaultConfig())
	r.updateRange(12, 4)
	r.requests(4, "w9", 0, Failure)
	r.used(0.2, 3*time.Minute)
	r.idleShares(200, nil) // drawn, but nothing is proven by requests that were cancelled
	for range 200 {
		p := r.pick(nil)
		r.Done(p, r.now, Success)
	}
	if got := r.stats("w9").State; got != "active" {
		t.Errorf("%s though there was traffic", got)
	}
}

func TestARequestThatHasTriedThePrefixGoesBeyondIt(t *testing.T) {
	r := newRig(t, DefaultConfig())
	r.updateRange(12, 4)
	r.used(0.2, time.Minute)
	for range 200 { // the draws may miss the last one of the prefix
		var tried Exclusion
		for i := range exclusionSize {
			p := r.pick(&tried)
			if within := p.Value().(int) < 4; within != (i < 4) {
				t.Fatalf("attempt %d went to %s", i, p.ID())
			}
			p.AddTo(&tried)
			r.Done(p, r.now, Cancelled)
		}
	}
}

func TestANegativeFloorIsRefused(t *testing.T) {
	r := newRig(t, DefaultConfig())
	if err := r.UpdateRange(Range[any]{Endpoints: rangeOf(3), MinEffective: -1}, r.now); err == nil {
		t.Error("accepted")
	}
}

// The reason for all this. 100 relays, each with a range of all 40 workers in an
// order of its own, send one request in half a minute to each: every estimate is stale. Workers take one request at a time, a fifth of them is three times as slow.
func TestAtALowRateTheTailIsFarShorterWithinAPrefix(t *testing.T) {
	within, whole := lowRateTail(t, 1), lowRateTail(t, 0)
	t.Logf("p99 %v within a prefix, %v with the whole range", within, whole)
	if within > whole/4 {
		t.Errorf("p99 is %v within a prefix and %v with the whole range; want at most a quarter", within, whole)
	}
}

// lowRateTail returns the 99th percentile after the first half of a simulated run
// with this number of requests per second and endpoint.
func lowRateTail(t *testing.T, endpointRate float64) time.Duration {
	const (
		relays, workers = 100, 40
		service         = 200 * ms
		way             = 10 * ms // from the relay to the worker, and back
		load            = 0.8
		end             = Instant(60 * time.Second)
	)
	rng := rand.New(rand.NewPCG(3, 4))
	cfg := DefaultConfig()
	cfg.EndpointRate, cfg.Rand = endpointRate, rng.Uint64
	balancers := make([]*Balancer[any], relays)
	for i := range balancers {
		b, err := NewBalancer[any](cfg)
		if err != nil {
			t.Fatal(err)
		}
		all, at := rangeOf(workers), i*workers/relays
		if err := b.UpdateRange(Range[any]{Endpoints: append(all[at:], all[:at]...), MinEffective: 1}, 0); err != nil {
			t.Fatal(err)
		}
		balancers[i] = b
	}
	rate := workers * (0.8 + 0.2/3) / service.Seconds() * load
	var free [workers]Instant // when the worker has served what it has got
	var out departures
	owner := map[*entry]*Balancer[any]{}
	var latencies []time.Duration
	refresh := Instant(0)
	for now := Instant(0); now < end; now += Instant(rng.ExpFloat64() / rate * 1e9) {
		for len(out) > 0 && out[0].at <= now {
			d := heap.Pop(&out).(departure)
			owner[d.pick.entry].Done(d.pick, d.at, d.outcome.result())
		}
		if now >= refresh {
			for _, b := range balancers {
				b.Refresh(now)
			}
			refresh = now + Instant(250*ms)
		}
		b := balancers[rng.IntN(relays)]
		p, err := b.Pick(now, nil)
		if err != nil {
			t.Fatal(err)
		}
		owner[p.entry] = b
		w := p.Value().(int)
		took := rng.ExpFloat64() * float64(service)
		if w%5 == 0 {
			took *= 3
		}
		free[w] = max(free[w], now+Instant(way)) + Instant(took)
		answered := free[w] + Instant(way)
		heap.Push(&out, departure{answered, p, Success})
		if now > end/2 {
			latencies = append(latencies, time.Duration(answered-now))
		}
	}
	slices.Sort(latencies)
	return latencies[len(latencies)*99/100]
}

// narrowed is a range that little traffic has narrowed to three endpoints.
func narrowed(t *testing.T, n int) *rig {
	r := newRig(t, DefaultConfig())
	r.updateRange(n, 2)
	if got := r.used(0.5, time.Minute); got != narrowest {
		t.Fatalf("%d of %d endpoints are used", got, n)
	}
	return r
}

// A rate does not describe requests that last: the few endpoints that little traffic
// needs are soon full of them.
func TestRequestsAtOneTimeAreSpreadOverTheWholeRangeHoweverNarrowItWas(t *testing.T) {
	for _, c := range []struct{ n, requests int }{{8, 24}, {8, 8}, {6, 3}, {30, 24}, {30, 200}} {
		for _, halfOpen := range []bool{false, true} {
			r := narrowed(t, c.n)
			if halfOpen { // then draws go another way
				s := r.state("w1")
				s.phase.Store(uint32(evicted))
				r.pickFromTable("w1").guarded.until = r.now
				r.Refresh(r.now)
			}
			for range c.requests {
				r.pick(nil)
			}
			most := 0
			for _, s := range r.Stats(r.now) {
				most = max(most, s.InFlight)
			}
			if bound := (c.requests+c.n-1)/c.n + 2; most > bound {
				t.Errorf("%d requests over %d endpoints, half-open %t: %d in flight at one, want at most %d", c.requests, c.n, halfOpen, most, bound)
			}
		}
	}
}

// Four relays of six workers each, out of eight, as a plan shares them out: two
// requests a second, of nine seconds each.
func TestLongRequestsThatAreFewAreSharedByAllWorkers(t *testing.T) {
	const workers, relays, warmUp, requests = 8, 4, 120, 240
	for seed := range uint64(5) {
		rng := rand.New(rand.NewPCG(seed, 7))
		var rigs []*rig
		for i := range relays {
			r := newRig(t, DefaultConfig())
			r.rand = rng.Uint64
			var own []Endpoint[any]
			for k := range 6 {
				own = append(own, rangeOf(workers)[(i*workers/relays+k)%workers])
			}
			if err := r.UpdateRange(Range[any]{Endpoints: own, MinEffective: workers / relays}, r.now); err != nil {
				t.Fatal(err)
			}
			rigs = append(rigs, r)
		}
		counts := map[string]int{}
		type request struct {
			*rig
			Pick[any]
			end Instant
		}
		var out []request
		for n, now := 0, rigs[0].now; n < warmUp+requests; now += Instant(250 * ms) {
			for len(out) > 0 && out[0].end <= now {
				out[0].rig.Done(out[0].Pick, out[0].end, Success)
				out = out[1:]
			}
			for _, r := range rigs {
				r.now = now
				r.Refresh(now)
			}
			if rng.IntN(2) == 0 { // two a second
				continue
			}
			r := rigs[rng.IntN(relays)]
			p := r.pick(nil)
			if n++; n > warmUp {
				counts[p.ID()]++
			}
			out = append(out, request{r, p, now + Instant(9*time.Second)})
		}
		for id := range rangeOf(workers) {
			if got, mean := counts[rangeOf(workers)[id].ID], requests/workers; got < mean*2/3 || got > mean*4/3 {
				t.Errorf("seed %d: %d requests are shared out as %v", seed, requests, counts)
				break
			}
		}
	}
}

func TestSentCountsEveryRequestWhateverTheRange(t *testing.T) {
	r := newRig(t, DefaultConfig())
	send := func(n int) {
		t.Helper()
		for range n {
			p, err := r.Pick(r.now, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Done(p, r.now, Failure)
		}
		r.Refresh(r.now)
	}
	r.updateRange(3, 0)
	send(7)
	r.updateRange(9, 0)
	send(5)
	r.updateRange(1, 0)
	send(2)
	if n := r.Sent(); n != 14 {
		t.Errorf("%d requests, want 14", n)
	}
}

// All of the prefix have as many requests as they may: the next go beyond it.
func TestRequestsGoBeyondAPrefixThatIsFull(t *testing.T) {
	r := newRig(t, DefaultConfig())
	endpoints := rangeOf(12)
	for i := range endpoints {
		endpoints[i].Limit = 1
	}
	if err := r.UpdateRange(Range[any]{Endpoints: endpoints, MinEffective: 4}, r.now); err != nil {
		t.Fatal(err)
	}
	r.used(0.2, time.Minute)
	got := map[string]bool{}
	for i := range endpoints {
		p, err := r.Pick(r.now, nil)
		if err != nil || got[p.ID()] {
			t.Fatalf("request %d went to %v twice, or nowhere: %v", i, got, err)
		}
		got[p.ID()] = true
	}
	if p, err := r.Pick(r.now, nil); !errors.Is(err, ErrFull) {
		t.Errorf("one more than there are places went to %v: %v", p, err)
	}
}
