package selection

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func textbook() Config {
	cfg := DefaultConfig()
	cfg.Redraws = 0
	return cfg
}

func TestSharesFollowWeightsWhenScoresAreEqual(t *testing.T) {
	for _, weights := range [][]float64{
		{1, 1, 1, 1},
		{1, 2, 3, 4, 5},
		{0.5, 0.25, 0.125, 0.125},
		{90, 5, 5},
		{9, 1},
		{7},
	} {
		t.Run(fmt.Sprint(weights), func(t *testing.T) {
			r := newRig(t, textbook())
			endpoints, total := rangeOf(len(weights)), 0.0
			for i, w := range weights {
				endpoints[i].Weight = w
				total += w
			}
			r.update(endpoints)
			shares := r.idleShares(100_000, nil)
			for i, w := range weights {
				near(t, endpoints[i].ID, shares[endpoints[i].ID], w/total, 0.05)
			}
		})
	}
}

func TestTheAliasTableIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := rapid.SliceOfN(rapid.Float64Range(1e-3, 1e3), 1, 50).Draw(t, "weights")
		table := newAliasTable(weights)
		got, total := make([]float64, len(weights)), 0.0
		for i, s := range table.slots {
			keep := float64(s.keep) / (1 << 32)
			got[i] += keep / float64(len(weights))
			got[s.alias] += (1 - keep) / float64(len(weights))
			total += weights[i]
		}
		for i, w := range weights {
			if math.Abs(got[i]-w/total) > 1e-8 {
				t.Fatalf("index %d is drawn with probability %v, want %v", i, got[i], w/total)
			}
		}
	})
}

func TestTheSecondOfAPairIsNeverTheFirstAndFollowsTheWeights(t *testing.T) {
	weights := []float64{8, 1, 0.5, 2, 4}
	table := newAliasTable(weights)
	for not := range weights {
		const steps = 100_000
		got := make([]float64, len(weights))
		for i := range uint64(steps) {
			got[table.drawOther(not, i*(math.MaxUint64/steps))] += 1.0 / steps
		}
		for i, w := range weights {
			if i == not {
				if got[i] != 0 {
					t.Errorf("drew %d, which was to be left out", i)
				}
				continue
			}
			near(t, fmt.Sprintf("share of %d next to %d", i, not), got[i], w/(15.5-weights[not]), 0.01)
		}
	}
	for _, random := range []uint64{0, 1, math.MaxUint64} {
		if got := table.drawOther(4, random); got == 4 {
			t.Errorf("random bits %x drew the index that was to be left out", random)
		}
	}
}

func TestOfTwoEndpointsTheBetterAlwaysWins(t *testing.T) {
	r := newRig(t, textbook())
	endpoints := rangeOf(2)
	endpoints[0].Weight = 99 // the pair is distinct, so weight cannot save it
	r.update(endpoints)
	r.request("w0", 100*ms, Success)
	r.request("w1", 10*ms, Success)
	if shares := r.idleShares(1000, nil); shares["w0"] != 0 {
		t.Errorf("the better of two got %v", shares)
	}
}

func TestAOneEndpointRangeWorks(t *testing.T) {
	r := newRig(t, DefaultConfig())
	r.update(rangeOf(1))
	r.requests(20, "w0", ms, Failure)
	if p := r.pick(nil); p.ID() != "w0" || p.Value() != 0 || p.endpoint().Weight != 1 {
		t.Errorf("picked %+v", p.endpoint())
	}
}

func TestATenTimesSlowerEndpointGetsMuchLessThanItsShare(t *testing.T) {
	r := newRig(t, DefaultConfig())
	r.update(rangeOf(10))
	got := r.drive(load{200, 20 * time.Second, func(id string, _ Instant) (time.Duration, ended) {
		if id == "w0" {
			return 250 * ms, Success
		}
		return 25 * ms, Success
	}})
	if got.shares["w0"] > 0.02 {
		t.Errorf("share is %v, fair is 0.1", got.shares["w0"])
	}
	if got.shares["w0"] == 0 {
		t.Error("never tried")
	}
}

func TestAnEndpointThatFailsFastIsNoSinkhole(t *testing.T) {
	for _, reports := range []bool{false, true} {
		t.Run(fmt.Sprintf("reports=%v", reports), func(t *testing.T) {
			r := newRig(t, DefaultConfig())
			r.update(rangeOf(10))
			got := r.drive(load{400, 30 * time.Second, func(id string, _ Instant) (time.Duration, ended) {
				if id == "w0" {
					return ms, Failure
				}
				if reports {
					return 25 * ms, Success.with(1)
				}
				return 25 * ms, Success
			}})
			if got.shares["w0"] > 0.01 {
				t.Errorf("share is %v, want at most a tenth of the fair 0.1", got.shares["w0"])
			}
		})
	}
}

func TestAnEndpointThatShedsFastWithoutReportsIsNoSinkhole(t *testing.T) {
	r := newRig(t, DefaultConfig())
	r.update(rangeOf(10))
	got := r.drive(load{400, 30 * time.Second, func(id string, _ Instant) (time.Duration, ended) {
		if id == "w0" {
			return ms, Shed
		}
		return time.Duration(r.rng.ExpFloat64() * 25e6), Success
	}})
	if got.shares["w0"] > 0.05 {
		t.Errorf("share is %v, want at most half of the fair 0.1", got.shares["w0"])
	}
	if got := r.stats("w0"); got.State != "active" {
		t.Errorf("a busy endpoint is %s", got.State)
	}
}

func TestFailuresPushAwayEvenWhereNoEndpointMayBeEvicted(t *testing.T) {
	r := newRig(t, DefaultConfig())
	r.update(rangeOf(2))
	got := r.drive(load{100, 30 * time.Second, func(id string, _ Instant) (time.Duration, ended) {
		if id == "w0" {
			return ms, Failure
		}
		return 25 * ms, Success
	}})
	if got.shares["w0"] > 0.1 {
		t.Errorf("share is %v, want at most a fifth of the fair 0.5", got.shares["w0"])
	}
}

func TestAJoinerIsNeitherFloodedNorStarved(t *testing.T) {
	r := newRig(t, DefaultConfig())
	r.update(rangeOf(10))
	answer := func(string, Instant) (time.Duration, ended) { return 25 * ms, Success }
	r.drive(load{400, 10 * time.Second, answer})
	r.update(rangeOf(11))
	if got := r.drive(load{400, 250 * ms, answer}).shares["w10"]; got > 1.5/11 {
		t.Errorf("share in the first quarter of a second is %v, fair is 0.09", got)
	}
	r.drive(load{400, 3 * time.Second, answer})
	near(t, "share afterwards", r.drive(load{400, 10 * time.Second, answer}).shares["w10"], 1.0/11, 0.2)
}

func TestASlowEndpointThatRecoversIsTriedAgain(t *testing.T) {
	const runs = 10 // one run depends on a few unlucky samples
	share := 0.0
	for seed := range uint64(runs) {
		r := newRig(t, DefaultConfig())
		r.rng = rand.New(rand.NewPCG(seed, 2))
		r.rand = r.rng.Uint64
		r.update(rangeOf(10))
		mean := 25e6
		answer := func(id string, _ Instant) (time.Duration, ended) {
			if id == "w0" {
				return time.Duration(r.rng.ExpFloat64() * mean), Success
			}
			return time.Duration(r.rng.ExpFloat64() * 25e6), Success
		}
		r.drive(load{600, 10 * time.Second, answer})
		mean = 250e6
		r.drive(load{600, 3 * time.Second, answer})
		mean = 25e6
		r.drive(load{600, 30 * time.Second, answer})
		share += r.drive(load{600, 20 * time.Second, answer}).shares["w0"] / runs
	}
	if share < 0.05 {
		t.Errorf("share 30 to 50 s after recovery is %v, want at least half of the fair 0.1", share)
	}
}

func TestRedrawsShortenTheTail(t *testing.T) {
	p99 := func(cfg Config) time.Duration {
		r := newRig(t, cfg)
		r.update(rangeOf(20))
		const slots = 2
		var busy [20][slots]Instant // FIFO workers
		got := r.drive(load{900, 40 * time.Second, func(id string, now Instant) (time.Duration, ended) {
			var w int
			fmt.Sscanf(id, "w%d", &w)
			slot := 0
			if busy[w][1] < busy[w][0] {
				slot = 1
			}
			service := r.rng.ExpFloat64() * 25e6
			if w%4 == 0 { // a quarter of the fleet is three times as slow
				service *= 3
			}
			busy[w][slot] = max(busy[w][slot], now) + Instant(service)
			return time.Duration(busy[w][slot] - now), Success
		}})
		slices.Sort(got.latencies)
		return got.latencies[len(got.latencies)*99/100]
	}
	with, without := p99(DefaultConfig()), p99(textbook())
	t.Logf("p99 %v with two redraws, %v without", with, without)
	if float64(with) > 0.9*float64(without) {
		t.Errorf("p99 is %v with two redraws and %v without; want at least a tenth less", with, without)
	}
}

func TestTheRunningWinnerMovesByASixteenthAtOnePickInFour(t *testing.T) {
	var w runningWinner
	w.update(w.load(), 640, 0b110) // the first counts in any case
	w.update(w.load(), 1280, 0b001)
	near(t, "W", float64(w.load()), 680, 0.0001)
	w.update(w.load(), 0, 0b1000)
	near(t, "W", float64(w.load()), 680-680.0/16, 0.0001)
	for _, random := range []uint64{0b010, 0b100, 0b110} {
		w.update(w.load(), 10, random)
	}
	near(t, "W after three picks that do not count", float64(w.load()), 680-680.0/16, 0.0001)
}

func TestStatisticsSurviveAnUpdate(t *testing.T) {
	r := newRig(t, DefaultConfig())
	r.update(rangeOf(3))
	r.settle()
	r.requests(5, "w1", 70*ms, Success.with(3))
	r.request("w1", ms, Failure)
	out := r.pickFrom("w1")
	before := r.stats("w1")
	r.update([]Endpoint[any]{{ID: "w9", Weight: 1}, {ID: "w1", Weight: 5, Value: "new"}, {ID: "w2", Weight: 1}})
	after := r.stats("w1")
	if after.Weight != 5 {
		t.Errorf("weight is %v, want the new one", after.Weight)
	}
	after.Weight, after.Score = before.Weight, before.Score // by weight, the same queue is shorter
	if after != before {
		t.Errorf("was %+v, is %+v", before, after)
	}
	r.Done(out, r.now, Success)
	if got := r.stats("w1").InFlight; got != 0 {
		t.Errorf("%d in flight after the ticket of the old table came back", got)
	}
	for range 100 {
		if p := r.pick(nil); p.ID() == "w1" && p.Value() != "new" {
			t.Fatalf("picked the old value %v", p.Value())
		}
	}
}

func TestATicketOfADepartedEndpointComesBackHarmlessly(t *testing.T) {
	r := newRig(t, DefaultConfig())
	r.update(rangeOf(6))
	var gone []Pick[any]
	for range 6 {
		gone = append(gone, r.pickFrom("w0"))
	}
	r.update(rangeOf(6)[1:])
	for _, p := range gone {
		r.Done(p, r.now, Failure)
	}
	r.update(rangeOf(6))
	if got := r.stats("w0"); got.State != "active" || got.Picks != 0 {
		t.Errorf("the endpoint came back as %+v, want a clean start", got)
	}
}

func TestUpdateRefusesABadRangeAndKeepsTheOld(t *testing.T) {
	r := newRig(t, DefaultConfig())
	r.update(rangeOf(1))
	err := r.Update([]Endpoint[any]{{Weight: 1}, {ID: "a", Weight: -1}, {ID: "a", Weight: math.NaN()}, {ID: "b", Weight: math.Inf(1)}}, r.now)
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"endpoint 0 has no ID", `"a" is listed twice`, `"a" has weight -1`, `"a" has weight NaN`, `"b" has weight +Inf`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not say %q", err, want)
		}
	}
	if p := r.pick(nil); p.ID() != "w0" {
		t.Errorf("picked %q from a refused range", p.ID())
	}
}

func TestExcludedEndpointsArePassedOver(t *testing.T) {
	for _, n := range []int{2, 3, 10} {
		r := newRig(t, DefaultConfig())
		r.update(rangeOf(n))
		var tried Exclusion
		seen := map[string]bool{}
		for range n {
			p := r.pick(&tried)
			if seen[p.ID()] {
				t.Fatalf("n=%d: picked %q again", n, p.ID())
			}
			seen[p.ID()] = true
			p.AddTo(&tried)
			r.Done(p, r.now, Cancelled)
			if n == 10 && tried.count() == 8 {
				break // as many as the set remembers
			}
		}
	}
}

// A router leaves out what it cannot connect to, and takes it back when nothing else is left.
func TestAnEndpointThatLeavesAndComesBackStaysExcluded(t *testing.T) {
	ways := map[string]func(*rig, *Exclusion) (Pick[any], error){
		"Pick":          func(r *rig, x *Exclusion) (Pick[any], error) { return r.Pick(r.now, x) },
		"PickSession":   func(r *rig, x *Exclusion) (Pick[any], error) { return r.PickSession(r.now, x, nil) },
		"PickExplained": func(r *rig, x *Exclusion) (Pick[any], error) { return r.PickExplained(r.now, x, new(Decision)) },
		"PickBy": func(r *rig, x *Exclusion) (Pick[any], error) {
			return r.PickBy(r.now, x, &inOrder{ids: []string{"w0", "w1"}})
		},
	}
	for name, pick := range ways {
		r := newRig(t, DefaultConfig())
		r.update(rangeOf(2))
		var tried Exclusion
		for range 2 {
			p, err := pick(r, &tried)
			if err != nil {
				t.Fatal(name, err)
			}
			p.AddTo(&tried)
			r.Done(p, r.now, Failure)
			r.update(nil)
			r.update(rangeOf(2))
		}
		if p, err := pick(r, &tried); err == nil {
			t.Errorf("%s: a request that both have failed got %q once more", name, p.ID())
		}
	}
}

// Half of the endpoints are behind a black hole, and the requests there have run out of
// time together. The others are busy.
func TestARetryAvoidsEndpointsThatDidNotAnswerEither(t *testing.T) {
	r := fleet(t, 6, DefaultConfig())
	silent := []string{"w0", "w1", "w2"}
	var waiting []Pick[any]
	for _, id := range silent {
		waiting = append(waiting, r.pickFrom(id))
	}
	r.wait(2 * time.Second)
	for _, id := range []string{"w3", "w4", "w5"} {
		r.pickFrom(id)
	}
	for _, p := range waiting {
		r.Done(p, r.now, NoAnswer)
	}
	var tried Exclusion
	waiting[0].AddTo(&tried)
	again := 0
	for range 10_000 {
		p := r.pick(&tried)
		if slices.Contains(silent, p.ID()) {
			again++
		}
		r.Done(p, r.now, Cancelled)
	}
	if again > 0 {
		t.Errorf("%d of 10,000 retries went to another endpoint that did not answer", again)
	}
}

func TestARetryIsNoTryOfAnEvictedEndpoint(t *testing.T) {
	r := fleet(t, 6, DefaultConfig())
	r.requests(4, "w0", 0, Failure)
	r.evictedFor()
	if got := r.stats("w0").State; got != "half_open" {
		t.Fatalf("state is %s", got)
	}
	var tried Exclusion
	r.pickFrom("w1").AddTo(&tried)
	if share := r.idleShares(1000, &tried)["w0"]; share > 0 {
		t.Errorf("%.1f %% of retries went to an endpoint that was evicted", 100*share)
	}
	for id := range 5 {
		r.pickFrom(fmt.Sprintf("w%d", id+1)).AddTo(&tried)
	}
	if p := r.pick(&tried); p.ID() != "w0" || p.is != probing {
		t.Errorf("picked %q when only w0 was left", p.ID())
	}
}

func TestWeightsHoldAmongTheEndpointsLeft(t *testing.T) {
	r := newRig(t, textbook())
	endpoints := rangeOf(4)
	for i := range endpoints {
		endpoints[i].Weight = float64(1 + i)
	}
	r.update(endpoints)
	var tried Exclusion
	p := r.pickFrom("w3")
	p.AddTo(&tried)
	p.AddTo(&tried) // twice is once
	r.Done(p, r.now, Cancelled)
	shares := r.idleShares(60_000, &tried)
	for i, want := range []float64{1.0 / 6, 2.0 / 6, 3.0 / 6} {
		near(t, endpoints[i].ID, shares[endpoints[i].ID], want, 0.05)
	}
	tried = Exclusion{}
	if shares := r.idleShares(1000, &tried); shares["w3"] == 0 {
		t.Error("still excluded after Reset")
	}
}

func TestTheErrorExplainsWhyNothingCouldBePicked(t *testing.T) {
	r := newRig(t, DefaultConfig())
	_, empty := r.Pick(r.now, nil)
	r.update(rangeOf(2))
	var tried Exclusion
	r.pickFrom("w0").AddTo(&tried)
	r.pickFrom("w1").AddTo(&tried)
	_, excluded := r.Pick(r.now, &tried)
	for err, want := range map[error]string{empty: "the range is empty", excluded: "tried every endpoint"} {
		if !errors.Is(err, ErrNoEndpoint) || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %q, want ErrNoEndpoint because %q", err, want)
		}
	}
}

func TestWeightZeroIsDrawnOnlyWhenNothingElseIsLeft(t *testing.T) {
	r := newRig(t, DefaultConfig())
	endpoints := rangeOf(3)
	endpoints[0].Weight = 0
	r.update(endpoints)
	if shares := r.idleShares(2000, nil); shares["w0"] != 0 {
		t.Errorf("an endpoint of weight 0 got %v", shares["w0"])
	}
	var tried Exclusion
	r.pickFrom("w1").AddTo(&tried)
	r.pickFrom("w2").AddTo(&tried)
	if p := r.pick(&tried); p.ID() != "w0" {
		t.Errorf("picked %q", p.ID())
	}
	for i := range endpoints {
		endpoints[i].Weight = 0
	}
	r.update(endpoints)
	near(t, "share when all have weight 0", r.idleShares(10_000, nil)["w1"], 1.0/3, 0.1)
}

func TestPickAndDoneDoNotAllocate(t *testing.T) {
	r := newRig(t, DefaultConfig())
	r.update(rangeOf(50))
	r.rand = nil
	var tried Exclusion
	r.pickFrom("w3").AddTo(&tried)
	for name, excluded := range map[string]*Exclusion{"nothing excluded": nil, "one excluded": &tried} {
		if n := testing.AllocsPerRun(2000, func() {
			p, err := r.Pick(r.now, excluded)
			if err != nil {
				t.Error(err)
			}
			r.now += Instant(ms)
			r.Balancer.Done(p, r.now, Success.with(2))
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func TestEverythingMayRunConcurrently(t *testing.T) {
	b, err := NewBalancer[any](DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Update(rangeOf(12), 0); err != nil {
		t.Fatal(err)
	}
	var pickers, keepers sync.WaitGroup
	stop := make(chan struct{})
	for _, step := range []func(i int){
		func(i int) {
			if err := b.Update(rangeOf(6+i%7), Instant(i)*Instant(ms)); err != nil {
				t.Error(err)
			}
		},
		func(i int) { b.Refresh(Instant(i) * Instant(20*ms)) },
		func(i int) { b.Stats(Instant(i) * Instant(ms)) },
	} {
		keepers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
					step(i)
				}
			}
		})
	}
	outcomes := []ended{Success.with(1), Success, Failure, Shed, Cancelled, Failure, Failure, Failure}
	for g := range 4 {
		pickers.Go(func() {
			for i := range 5000 {
				now := Instant(i) * Instant(ms)
				var tried Exclusion
				for range i % 3 {
					p, err := b.Pick(now, &tried)
					if err != nil {
						t.Error(err)
						return
					}
					p.AddTo(&tried)
					b.Done(p, now+Instant(ms), outcomes[(i+g)%len(outcomes)].result())
				}
			}
		})
	}
	pickers.Wait()
	close(stop)
	keepers.Wait()
	for _, s := range b.Stats(Instant(time.Hour)) {
		if s.InFlight != 0 {
			t.Errorf("%s has %d in flight after everything came back", s.ID, s.InFlight)
		}
	}
}
