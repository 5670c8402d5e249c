package queueing

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"pgregory.net/rapid"

	"github.com/ringway/ringway/selection"
)

// anyPolicy picks at random and notifies a test of what happens.
type anyPolicy struct {
	env     Env
	list    []Endpoint
	updates int
	done    func(Ticket, Answer)
}

func (a *anyPolicy) Update(list []Endpoint, _ selection.Instant) { a.list = list; a.updates++ }
func (a *anyPolicy) Pick(selection.Instant) Ticket {
	return Ticket{Worker: int32(a.list[a.env.Rand.IntN(len(a.list))].Worker)}
}
func (a *anyPolicy) Done(t Ticket, w Answer) {
	if a.done != nil {
		a.done(t, w)
	}
}
func (*anyPolicy) Refresh(selection.Instant) {}
func (*anyPolicy) Evictions() int            { return 1 }

func telling(done func(Ticket, Answer)) Policy {
	return Policy{Name: "anyPolicy", New: func(env Env) Client { return &anyPolicy{env: env, done: done} }}
}

var small = Topology{Clients: 5, Workers: 20, Range: 20}

func mustRun(t *testing.T, cfg Config) Result {
	t.Helper()
	if cfg.Topology.Clients == 0 {
		cfg.Topology = small
	}
	if cfg.Policy.New == nil {
		cfg.Policy = telling(nil)
	}
	r, err := Run(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestOneSeedGivesOneResult(t *testing.T) {
	latency := func(seed uint64) *hdrhistogram.Histogram {
		return mustRun(t, Config{Scenario: Hetero, Load: 0.7, Seed: seed}).latency
	}
	if !latency(1).Equals(latency(1)) {
		t.Error("the same seed gave two results")
	}
	if latency(1).Equals(latency(2)) {
		t.Error("two seeds gave the same result")
	}
}

func TestPoliciesAtOneSeedGetTheSameArrivals(t *testing.T) {
	starts := func(random bool) (out []selection.Instant) {
		p := telling(func(_ Ticket, a Answer) { out = append(out, a.Start) })
		if !random {
			make := p.New
			p.New = func(env Env) Client { return &first{make(env).(*anyPolicy)} }
		}
		mustRun(t, Config{Scenario: Equal, Load: 0.5, Seed: 3, Policy: p})
		slices.Sort(out)
		return out
	}
	if !slices.Equal(starts(true), starts(false)) {
		t.Error("arrivals depend on the policy")
	}
}

// first always takes its first worker.
type first struct{ *anyPolicy }

func (f *first) Pick(selection.Instant) Ticket { return Ticket{Worker: int32(f.list[0].Worker)} }

func TestAnIdleFleetAnswersAfterTheWorkAndTwoWays(t *testing.T) {
	r := mustRun(t, Config{Scenario: Equal, Load: 0.02, Seed: 1})
	// The median of a log-normal of mean 25 ms and sigma 1 is 25 ms · e^-½.
	want := float64(MeanService)*math.Exp(-0.5) + 2*float64(OneWay)
	if got := float64(r.Percentile(50)); math.Abs(got/want-1) > 0.05 {
		t.Errorf("median is %v, want %v", time.Duration(got), time.Duration(want))
	}
	if r.ErrorShare() != 0 {
		t.Errorf("%.2f %% errors", 100*r.ErrorShare())
	}
	bimodal := Bimodal
	bimodal.SlowShare = 0
	r = mustRun(t, Config{Scenario: bimodal, Load: 0.02, Seed: 1})
	for p, want := range map[float64]time.Duration{50: 13 * time.Millisecond, 89: 13 * time.Millisecond, 91: 138 * time.Millisecond} {
		if got := r.Percentile(p); got < want-want/100 || got > want+want/100 {
			t.Errorf("p%v of bimodal work is %v, want %v", p, got, want)
		}
	}
}

// Offered 40 % more than can be served, the rest is shed; queues of 128 take some time to fill.
func TestWhatCannotBeServedIsShed(t *testing.T) {
	long := Equal
	long.End = at(60)
	r := mustRun(t, Config{Scenario: long, Load: 1.4, Seed: 1})
	if got, want := float64(r.Shed)/float64(r.Requests), 1-1/1.4; math.Abs(got-want) > 0.02 || r.Failed > 0 {
		t.Errorf("%.3f of the requests were shed, %d failed; want %.3f", got, r.Failed, want)
	}
	// A full queue is 128 requests of 25 ms for four slots.
	if got := r.Percentile(50); got < 700*time.Millisecond || got > 950*time.Millisecond {
		t.Errorf("median behind a full queue is %v, want about 0.8 s", got)
	}
}

func TestLoadIsAShareOfTheCapacityOfWorkersAsTheyAre(t *testing.T) {
	for _, s := range []Scenario{Equal, Hetero} {
		r := mustRun(t, Config{Scenario: s, Load: 0.3, Seed: 1})
		capacity := 20 * Slots / MeanService.Seconds()
		capacity *= 1 - s.SlowShare
		if s.SlowShare > 0 {
			capacity += 20 * s.SlowShare * Slots / (s.SlowBy * MeanService.Seconds())
		}
		seconds := time.Duration(s.End - Warmup).Seconds()
		if got, want := float64(r.Requests), 0.3*capacity*seconds; math.Abs(got/want-1) > 0.03 {
			t.Errorf("%s: %v requests, want %v", s.Name, got, want)
		}
	}
}

func TestScenariosApplyTheirFaultToTheVictim(t *testing.T) {
	type seen struct {
		n, failed int
		latency   time.Duration
	}
	watch := func(s Scenario, from, to float64) (victim, others seen) {
		var answers []struct {
			Ticket
			Answer
		}
		f := &Fleet{Config: Config{Topology: small, Scenario: s, Load: 0.1, Seed: 1}, result: newResult()}
		f.Policy = telling(func(t Ticket, a Answer) {
			answers = append(answers, struct {
				Ticket
				Answer
			}{t, a})
		})
		if err := f.build(); err != nil {
			t.Fatal(err)
		}
		for f.step() {
		}
		for _, a := range answers {
			if a.Start < at(from) || a.Start >= at(to) {
				continue
			}
			side := &others
			if int(a.Worker) == f.victim {
				side = &victim
			} else if f.workers[a.Worker].slow > 1 {
				continue
			}
			side.n++
			side.latency += time.Duration(a.Now - a.Start)
			if a.Outcome == Failure {
				side.failed++
			}
		}
		return victim, others
	}
	mean := func(s seen) float64 { return float64(s.latency) / float64(max(s.n, 1)) }
	for _, c := range []struct {
		scenario Scenario
		from, to float64
		slower   float64 // the victim than the others, about
		failing  bool
	}{
		{FailFast, 6, 8, 1, false},
		{FailFast, 8, 20, 0, true},
		{Degrade, 6, 10, 1, false},
		{Degrade, 10, 16, 10, false},
		{Recovery, 8, 11, 10, false},
		{Recovery, 13, 21, 1, false},
		{Join, 10, 11, 3.5, false},
		{Join, 13, 20, 1, false},
	} {
		victim, others := watch(c.scenario, c.from, c.to)
		if victim.n == 0 || others.failed > 0 || c.failing != (victim.failed > 0) || c.failing && victim.failed < victim.n {
			t.Errorf("%s, %v to %v s: %d requests to the victim, %d failed; %d of the others", c.scenario.Name, c.from, c.to, victim.n, victim.failed, others.failed)
		}
		if got := mean(victim) / mean(others); !c.failing && (got < c.slower*0.6 || got > c.slower*1.7) {
			t.Errorf("%s, %v to %v s: the victim is %.2f times slower, want %v", c.scenario.Name, c.from, c.to, got, c.slower)
		}
	}
}

func TestBackgroundFailuresHitOneInAHundredEverywhere(t *testing.T) {
	r := mustRun(t, Config{Scenario: Background, Load: 0.3, Seed: 1})
	if share := r.ErrorShare(); share < 0.008 || share > 0.012 || r.Shed > 0 {
		t.Errorf("%.2f %% errors, %d shed", 100*share, r.Shed)
	}
}

func TestANewWorkerComesIntoRanges(t *testing.T) {
	medium := Topology{Clients: 20, Workers: 200, Range: 30}
	r := mustRun(t, Config{Topology: medium, Scenario: Join, Load: 0.2, Seed: 1})
	if len(r.VictimShares) != 1 || r.VictimShares[0] < 0.7 || r.VictimShares[0] > 1.4 {
		t.Errorf("random picks gave the new worker %v of the fair share", r.VictimShares)
	}
}

func TestReportsContainWhatElseIsAtTheWorker(t *testing.T) {
	highest, sum, n := 0, 0, 0
	mustRun(t, Config{Scenario: Equal, Load: 0.02, Seed: 1, Policy: telling(func(_ Ticket, a Answer) {
		highest, sum, n = max(highest, a.Load), sum+a.Load, n+1
	})})
	// 20 workers of 4 slots, 2 % busy: requests almost never wait.
	if mean := float64(sum) / float64(n); mean > 0.15 || highest > 5 {
		t.Errorf("idle workers report %.2f on average, up to %d", mean, highest)
	}
	highest = 0
	mustRun(t, Config{Scenario: Equal, Load: 2, Seed: 1, Policy: telling(func(_ Ticket, a Answer) {
		if a.Outcome == Shed && a.Load != Slots+QueueBound {
			t.Fatalf("a worker that sheds reports %d", a.Load)
		}
		highest = max(highest, a.Load)
	})})
	if highest != Slots+QueueBound {
		t.Errorf("full workers report at most %d", highest)
	}
}

func TestBalancedRangesGiveEveryWorkerTheSameNumberOfClients(t *testing.T) {
	for _, topology := range []Topology{small, {Clients: 20, Workers: 200, Range: 30}, {Clients: 100, Workers: 1000, Range: 30}} {
		covered := make([]float64, topology.Workers)
		ranges, err := topology.ranges(topology.Workers)
		if err != nil {
			t.Fatal(err)
		}
		for _, endpoints := range ranges {
			for _, e := range endpoints {
				covered[e.Worker] += e.Weight
			}
		}
		want := float64(topology.Clients) / float64(topology.Workers)
		for i, got := range covered {
			if math.Abs(got/want-1) > 1e-9 {
				t.Errorf("%v: worker %d gets %v of the traffic, want %v", topology, i, got, want)
			}
		}
		topology.Rendezvous = true
		if ranges, err = topology.ranges(topology.Workers); err != nil || len(ranges[0]) != topology.Range {
			t.Errorf("%v: %d workers in a range, %v", topology, len(ranges[0]), err)
		}
	}
}

func TestWhatCannotBeSimulatedIsRefused(t *testing.T) {
	for says, cfg := range map[string]Config{
		"load is":              {Topology: small, Load: math.NaN()},
		"choose a range":       {Topology: Topology{Clients: 20, Workers: 200, Range: 25}, Load: 0.5},
		"1 to all workers":     {Topology: Topology{Clients: 2}, Load: 0.5},
		"there must be":        {Topology: Topology{Clients: 2, Workers: 4, Range: 5, Rendezvous: true}, Load: 0.5},
		"Traffic has 2 parts":  {Topology: small, Load: 0.5, Traffic: []float64{1, 1}},
		"each client needs":    {Topology: small, Load: 0.5, Traffic: []float64{1, 1, 0, 1, 1}},
		"a client has 30 work": {Topology: Topology{Clients: 10, Workers: 100, Range: 20}, Load: 0.5},
	} {
		cfg.Scenario, cfg.Policy = Equal, telling(nil)
		if _, err := Run(cfg); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: %v, want %q", cfg.Topology, err, says)
		}
	}
}

func TestResultsAddUp(t *testing.T) {
	a := mustRun(t, Config{Scenario: FailFast, Load: 0.3, Seed: 1})
	b := mustRun(t, Config{Scenario: FailFast, Load: 0.3, Seed: 2})
	var sum Result
	sum.Add(a)
	sum.Add(b)
	if sum.Requests != a.Requests+b.Requests || sum.Failed != a.Failed+b.Failed || len(sum.VictimShares) != 2 ||
		sum.Evictions != 2*small.Clients || sum.latency.TotalCount() != a.latency.TotalCount()+b.latency.TotalCount() {
		t.Errorf("the sum of %+v and %+v is %+v", a, b, sum)
	}
	if share := sum.ErrorShare(); share != float64(a.Failed+b.Failed)/float64(sum.Requests) {
		t.Errorf("error share is %v", share)
	}
}

func TestATimetableIsSorted(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var table timetable
		var want []int64
		rt.Repeat(map[string]func(*rapid.T){
			"push": func(rt *rapid.T) {
				when := rapid.Int64Range(0, 50).Draw(rt, "at")
				table.push(event{at: selection.Instant(when)})
				want = append(want, when)
				slices.Sort(want)
			},
			"pop": func(rt *rapid.T) {
				if len(want) == 0 {
					rt.Skip()
				}
				if got := table.pop(); got.at != selection.Instant(want[0]) {
					rt.Fatalf("popped %d, want %d", got.at, want[0])
				}
				want = want[1:]
			},
		})
	})
}

func TestAQueueKeepsOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var q queue[int]
		var want []int
		rt.Repeat(map[string]func(*rapid.T){
			"push": func(rt *rapid.T) {
				n := rapid.Int().Draw(rt, "item")
				q.push(n)
				want = append(want, n)
			},
			"pop": func(rt *rapid.T) {
				if len(want) == 0 {
					rt.Skip()
				}
				if q.len() != len(want) || *q.front() != want[0] || q.pop() != want[0] {
					rt.Fatalf("not in order, or not of length %d", len(want))
				}
				want = want[1:]
			},
		})
	})
}

func TestProbesAreAnsweredWithTheMedianAtTheNearestLoad(t *testing.T) {
	var r recentLatencies
	if got := r.near(5); got != 0 {
		t.Errorf("without samples: %v", got)
	}
	for i := range 20 {
		r.add(3, float32(100+i)) // the last eight are 112 to 119
	}
	r.add(9, 7)
	for load, want := range map[int]float64{0: 116, 3: 116, 5: 116, 7: 7, 500: 7} {
		if got := r.near(load); got != want {
			t.Errorf("at load %d: %v, want %v", load, got, want)
		}
	}
}

// curious asks one worker after each answer.
type curious struct {
	anyPolicy
	probed func(Probe, selection.Instant)
	asked  selection.Instant
}

func (c *curious) Done(t Ticket, a Answer) {
	if c.asked == 0 && a.Now > Warmup {
		c.asked = a.Now
		c.env.Fleet.Probe(c.env.Index, int(t.Worker))
	}
}

func (c *curious) Probed(p Probe, now selection.Instant) { c.probed(p, now-c.asked) }

func TestAProbeTakesARoundTripAndNoSlot(t *testing.T) {
	answers := 0
	r := mustRun(t, Config{Scenario: Equal, Load: 0.5, Seed: 1, Policy: Policy{New: func(env Env) Client {
		return &curious{anyPolicy: anyPolicy{env: env}, probed: func(p Probe, took selection.Instant) {
			answers++
			if took != 2*selection.Instant(OneWay) || p.Latency <= 0 || p.Load < 0 {
				t.Errorf("%+v after %v", p, time.Duration(took))
			}
		}}
	}}})
	without := mustRun(t, Config{Scenario: Equal, Load: 0.5, Seed: 1})
	if answers != small.Clients || r.Requests != without.Requests || r.Percentile(99) != without.Percentile(99) {
		t.Errorf("%d probes were answered; p99 is %v with and %v without", answers, r.Percentile(99), without.Percentile(99))
	}
}

func BenchmarkRun(b *testing.B) {
	requests := int64(0)
	for b.Loop() {
		r, err := Run(Config{Topology: small, Scenario: Hetero, Load: 0.7, Seed: 1, Policy: telling(nil)})
		if err != nil {
			b.Fatal(err)
		}
		requests += r.Requests
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(requests), "ns/request")
}

// Measured work, arrivals and slots take the place of the model's, at the load that is asked.
func TestMeasurementsReplaceTheModel(t *testing.T) {
	measured := Measured{Service: []time.Duration{10 * time.Millisecond, 30 * time.Millisecond, 110 * time.Millisecond}}
	r := mustRun(t, Config{Scenario: Equal, Load: 0.1, Seed: 1, Measured: measured, Slots: 8})
	for p, want := range map[float64]time.Duration{10: 10500 * time.Microsecond, 50: 30500 * time.Microsecond, 90: 110500 * time.Microsecond} {
		if got := r.Percentile(p); got < want-want/100 || got > want+want/100 {
			t.Errorf("p%v is %v, want %v", p, got, want)
		}
	}
	// The mean is 50 ms, and 20 workers have 8 slots each.
	if got, want := float64(r.Requests), 0.1*20*8/0.05*14; math.Abs(got/want-1) > 0.03 {
		t.Errorf("%v requests, want %v", got, want)
	}
	long := Equal
	long.End = at(310)
	scaled := mustRun(t, Config{Scenario: long, Load: 0.02, Seed: 1, Measured: Measured{Mean: 4 * MeanService}, Warmup: at(10)})
	if got, want := float64(scaled.Percentile(50)), 4*float64(MeanService)*math.Exp(-0.5)+2*float64(OneWay); math.Abs(got/want-1) > 0.05 {
		t.Errorf("the median of work with four times the mean is %v, want %v", time.Duration(got), time.Duration(want))
	}
	if got, want := float64(scaled.Requests), 0.02*20*Slots/0.1*300; math.Abs(got/want-1) > 0.05 {
		t.Errorf("%v requests after a warm-up of 10 s, want %v", got, want)
	}
	// 400 requests that arrive together wait at the 80 slots.
	together := mustRun(t, Config{Scenario: Equal, Load: 0.5, Seed: 1, Measured: Measured{Gaps: append(make([]float64, 399), 400)}})
	if alone := mustRun(t, Config{Scenario: Equal, Load: 0.5, Seed: 1}); together.Percentile(50) < 2*alone.Percentile(50) {
		t.Errorf("the median is %v with 400 requests at a time, %v with single ones", together.Percentile(50), alone.Percentile(50))
	}
}
