package policy

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ringway/ringway/selection"
	"github.com/ringway/ringway/sims/internal/queueing"
)

// all are one of each kind.
func all() []queueing.Policy {
	return []queueing.Policy{
		RoundRobin, Random, LeastRequest, EWMA, PeakEWMA, Prequal(0.6), Omniscient,
		Ringway("ringway", selection.DefaultConfig()),
	}
}

func seconds(s float64) selection.Instant { return selection.Instant(s * float64(time.Second)) }

// client makes a client over n workers of weight 1, outside any run.
func client(p queueing.Policy, workers int) queueing.Client {
	c := p.New(queueing.Env{Rand: rand.New(rand.NewPCG(1, 2))})
	c.Update(rangeOf(workers), 0)
	return c
}

func rangeOf(workers int) []queueing.Endpoint {
	list := make([]queueing.Endpoint, workers)
	for i := range list {
		list[i] = queueing.Endpoint{Worker: i, Weight: 1}
	}
	return list
}

func run(t *testing.T, p queueing.Policy, s queueing.Scenario, load float64) queueing.Result {
	t.Helper()
	s.End = min(s.End, seconds(16))
	r, err := queueing.Run(queueing.Config{
		Topology: queueing.Topology{Clients: 5, Workers: 20, Range: 20}, Scenario: s, Policy: p, Load: load, Seed: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestEveryPolicyServesAnEqualFleet(t *testing.T) {
	for _, p := range all() {
		if r := run(t, p, queueing.Equal, 0.1); r.ErrorShare() > 0 || r.Requests == 0 {
			t.Errorf("%s: %d requests, %.2f %% errors", p.Name, r.Requests, 100*r.ErrorShare())
		}
	}
}

func TestEveryPolicyFollowsAChangeOfItsRange(t *testing.T) {
	for _, p := range all() {
		if p.Name == Omniscient.Name || p.Name == Prequal(0.6).Name {
			continue // they ask the fleet; the run below has it
		}
		c := client(p, 5)
		old := c.Pick(0)
		c.Update([]queueing.Endpoint{{Worker: 7, Weight: 1}}, seconds(1))
		c.Done(old, queueing.Answer{Now: seconds(1)}) // of a worker that is gone
		if got := c.Pick(seconds(1)); got.Worker != 7 {
			t.Errorf("%s picked %d of a range of 7", p.Name, got.Worker)
		}
	}
	for _, p := range all() {
		if r := run(t, p, queueing.Join, 0.1); r.VictimShares[0] == 0 && p.Name != Omniscient.Name {
			t.Errorf("%s never used the new worker", p.Name)
		}
	}
}

func TestDrawsAreInProportionToWeight(t *testing.T) {
	p := peers[struct{}]{rand: rand.New(rand.NewPCG(1, 2))}
	p.Update([]queueing.Endpoint{{Worker: 0, Weight: 1}, {Worker: 1, Weight: 2}, {Worker: 2, Weight: 5}}, 0)
	var drawn [3]float64
	for range 80_000 {
		drawn[p.draw().worker]++
	}
	for i, want := range []float64{10_000, 20_000, 50_000} {
		if math.Abs(drawn[i]/want-1) > 0.03 {
			t.Errorf("worker %d was drawn %v times, want %v", i, drawn[i], want)
		}
	}
	for range 100 {
		if a, b := p.pair(); a == b {
			t.Fatal("a pair of one")
		}
	}
}

func TestRoundRobinTakesEveryWorkerInTurn(t *testing.T) {
	c := client(RoundRobin, 4)
	var got []int32
	for range 4 {
		got = append(got, c.Pick(0).Worker)
	}
	if slices.Sort(got); !slices.Equal(got, []int32{0, 1, 2, 3}) {
		t.Errorf("four picks of four are %v", got)
	}
}

func TestLeastRequestAvoidsTheBusy(t *testing.T) {
	c := client(LeastRequest, 2)
	a, b := c.Pick(0), c.Pick(0)
	if a.Worker == b.Worker {
		t.Errorf("both requests went to %d", a.Worker)
	}
	c.Done(a, queueing.Answer{})
	if got := c.Pick(0); got.Worker != a.Worker {
		t.Errorf("picked the busy %d", got.Worker)
	}
}

func TestEWMATakesTheFasterForever(t *testing.T) {
	c := client(EWMA, 2)
	c.Done(queueing.Ticket{Worker: 0}, queueing.Answer{Now: seconds(1)})
	c.Done(queueing.Ticket{Worker: 1}, queueing.Answer{Now: seconds(0.5)})
	for _, now := range []float64{1, 1000} {
		if got := c.Pick(seconds(now)); got.Worker != 1 {
			t.Errorf("picked the slower %d at %v s", got.Worker, now)
		}
	}
}

func TestPeakEWMAJumpsUpAndDecaysDown(t *testing.T) {
	var p peak
	p.observe(100, 0)
	p.observe(500, seconds(1))
	if p.cost != 500 {
		t.Errorf("after a peak of 500 the cost is %v", p.cost)
	}
	p.observe(0, seconds(11))
	if want := 500 / math.E; math.Abs(p.cost-want) > 1 {
		t.Errorf("after 10 s it is %v, want %v", p.cost, want)
	}
	p.pending = 2
	if got, want := p.load(seconds(11)), 3*500/math.E; math.Abs(got-want) > 1 {
		t.Errorf("with two requests out the load is %v, want %v", got, want)
	}
	unknown := peak{pending: 1}
	if got := unknown.load(0); got <= peakPenalty {
		t.Errorf("an unknown worker with a request out has load %v", got)
	}
}

func TestFailureAccrualKillsAndRevives(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var a accrual
	for range 4 {
		if a.done(false, 0, random) {
			t.Fatal("dead before the fifth failure")
		}
	}
	if !a.done(false, 0, random) || !a.closed(seconds(2.4)) {
		t.Fatal("alive after five failures in a row")
	}
	if a.closed(seconds(5)) {
		t.Error("still closed after the longest first time out")
	}
	a.sent(seconds(5))
	if !a.closed(seconds(5)) {
		t.Error("more than one request may try a dead worker")
	}
	if !a.done(false, seconds(5), random) || !a.closed(seconds(9.9)) {
		t.Error("the second time out is no longer than the first")
	}
	a.sent(seconds(20))
	if a.done(true, seconds(20), random) || a.closed(seconds(20)) {
		t.Error("dead after it was tried with success")
	}
	var b accrual // alternately: never five in a row, but fewer than 80 %
	died := false
	for i := range 100 {
		died = died || b.done(i%2 == 0, seconds(float64(i)), random)
	}
	if !died {
		t.Error("alive with half of the requests failed for 100 s")
	}
}

func TestPrequalTakesTheFastestOfTheColdThenTheLeastLoaded(t *testing.T) {
	c := client(Prequal(0.5), 4).(*prequal)
	answer := func(worker, load int, latency float64) {
		c.Probed(queueing.Probe{Worker: worker, Load: load, Latency: latency}, 0)
	}
	answer(0, 1, 30)
	answer(1, 2, 20)
	if got := c.pool[c.best(c.threshold())].Worker; got != 1 {
		t.Errorf("of two cold ones %d was taken, not the faster", got)
	}
	if got := c.pool[c.best(1)].Worker; got != 0 {
		t.Errorf("%d was taken, which is hot", got)
	}
	if got := c.pool[c.best(0)].Worker; got != 0 {
		t.Errorf("of two hot ones %d was taken, not the less loaded", got)
	}
}

func TestPrequalHasNoDefenceAgainstFastFailures(t *testing.T) {
	if share := run(t, Prequal(0.6), queueing.FailFast, 0.7).VictimShares[0]; share < 1 {
		t.Errorf("the failing worker got %.2f of its share; the published policy is drawn to it", share)
	}
}

func TestTheOmniscientIsBest(t *testing.T) {
	best := run(t, Omniscient, queueing.Hetero, 0.7)
	for _, p := range all() {
		if r := run(t, p, queueing.Hetero, 0.7); r.Percentile(99) < best.Percentile(99) {
			t.Errorf("%s has a p99 of %v, the omniscient %v", p.Name, r.Percentile(99), best.Percentile(99))
		}
	}
	if share := run(t, Omniscient, queueing.FailFast, 0.7).VictimShares[0]; share != 0 {
		t.Errorf("it sent %v of the fair share to a worker that it knew to fail", share)
	}
}

func TestEvictionsAreCounted(t *testing.T) {
	for _, p := range []queueing.Policy{PeakEWMA, Ringway("ringway", selection.DefaultConfig())} {
		if r := run(t, p, queueing.FailFast, 0.7); r.Evictions == 0 {
			t.Errorf("%s: a worker that fails every request is not evicted", p.Name)
		}
		if r := run(t, p, queueing.Hetero, 0.7); r.Evictions > 0 {
			t.Errorf("%s: %d evictions without a failure", p.Name, r.Evictions)
		}
	}
}

// The configuration reaches the balancer: textbook P2C does worse.
func TestRingwayIsTheBalancerThatItIsGiven(t *testing.T) {
	cfg := selection.DefaultConfig()
	full := run(t, Ringway("full", cfg), queueing.Hetero, 0.9)
	cfg.Redraws = 0
	if plain := run(t, Ringway("plain", cfg), queueing.Hetero, 0.9); plain.Percentile(50) <= full.Percentile(50) {
		t.Errorf("median without redraws is %v, with them %v", plain.Percentile(50), full.Percentile(50))
	}
}

func TestAPolicyWithoutLoadReportsKnowsLess(t *testing.T) {
	cfg := selection.DefaultConfig()
	told := run(t, Ringway("told", cfg), queueing.Hetero, 0.9)
	if not := run(t, Unreported("not told", Ringway("told", cfg)), queueing.Hetero, 0.9); not.Percentile(50) <= told.Percentile(50) {
		t.Errorf("median without reports is %v, with them %v", not.Percentile(50), told.Percentile(50))
	}
}
