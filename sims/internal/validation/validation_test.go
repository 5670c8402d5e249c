package validation

import (
	"context"
	"errors"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/selection"
	"github.com/ringway/ringway/sims/internal/policy"
	"github.com/ringway/ringway/sims/internal/queueing"
	"github.com/ringway/ringway/sims/internal/scenario"
	"github.com/ringway/ringway/sims/internal/scenario/scenariotest"
)

func smallCase() Case {
	return Case{Relays: 3, Workers: 5, Load: 0.2, Measured: 4 * time.Second, Seed: 1, selection: selection.DefaultConfig()}
}

// The backends sleep for what the model draws: on a fleet so idle that no request waits, a request
// takes its work times the slowness of its worker, and nothing else.
func TestTheWorkOfARequestIsWhatTheModelDraws(t *testing.T) {
	c := smallCase()
	c.Load = 0.001
	c.Measured = 20 * time.Minute
	requests, seen, err := simulate(c, 0)
	if err != nil {
		t.Fatal(err)
	}
	slow := c.slowFactors()
	var want []time.Duration
	for _, r := range requests {
		if r.measured() {
			want = append(want, r.work)
		}
	}
	if len(want) != len(seen.latencies) || len(want) < 100 {
		t.Fatalf("%d requests, %d answers", len(want), len(seen.latencies))
	}
	// Which worker had which request is not recorded: each latency is some request's work,
	// or that of a slow worker.
	slices.Sort(want)
	for _, took := range seen.latencies {
		near := func(d time.Duration) bool {
			i, _ := slices.BinarySearch(want, d)
			for _, j := range []int{i - 1, i} {
				if j >= 0 && j < len(want) && math.Abs(float64(want[j]-d)) < 1e-5*float64(d)+2 {
					return true
				}
			}
			return false
		}
		if !near(took) && !near(took/slowBy) {
			t.Fatalf("a request took %v, which is no request's work", took)
		}
	}
	if n := len(slices.DeleteFunc(slices.Clone(slow), func(s float64) bool { return s == 1 })); n != 1 {
		t.Errorf("%d slow workers of 5", n)
	}
}

// A worker that is busy longer with the same work is a slow one.
func TestTheSlowWorkersAreThoseOfTheModel(t *testing.T) {
	c := smallCase()
	c.Measured = 30 * time.Second
	busy := make([]time.Duration, c.Workers)
	count := make([]int, c.Workers)
	_, err := queueing.Run(queueing.Config{
		Topology: c.topology(), Load: 0.05, Seed: c.Seed,
		Scenario: queueing.Scenario{SlowShare: slowShare, SlowBy: slowBy, End: queueing.Warmup + selection.Instant(c.Measured)},
		Policy: queueing.Policy{Name: "random", New: func(env queueing.Env) queueing.Client {
			return &timer{Client: policy.Random.New(env), busy: busy, count: count}
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	slow := c.slowFactors()
	slowest := 0
	for i := range busy {
		busy[i] /= time.Duration(max(1, count[i]))
		if busy[i] > busy[slowest] {
			slowest = i
		}
	}
	if slow[slowest] != slowBy {
		t.Errorf("the model's slow worker is %d (%v), ours are %v", slowest, busy, slow)
	}
}

type timer struct {
	queueing.Client
	busy  []time.Duration
	count []int
}

func (c *timer) Done(t queueing.Ticket, a queueing.Answer) {
	c.busy[t.Worker] += time.Duration(a.Now - a.Start)
	c.count[t.Worker]++
	c.Client.Done(t, a)
}

func TestEachDrawHasTheSameRequestsAndOtherWorkers(t *testing.T) {
	c := smallCase()
	requests, first, err := simulate(c, 0)
	if err != nil {
		t.Fatal(err)
	}
	again, second, err := simulate(c, 1)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(requests, again) {
		t.Error("the second draw has other requests")
	}
	if slices.Equal(first.byWorker, second.byWorker) {
		t.Errorf("both draws have the same workers: %v", first.byWorker)
	}
	for i := 1; i < len(requests); i++ {
		if requests[i].due < requests[i-1].due || requests[i].relay < 0 || requests[i].relay >= c.Relays {
			t.Fatalf("request %d is %+v, after %+v", i, requests[i], requests[i-1])
		}
	}
}

func TestADeathOpensWhatThePlanWithoutTheWorkerNeeds(t *testing.T) {
	c := Case{Relays: 6, Workers: 20, Seed: 1}
	before, _, err := simulateDeath(c, 3)
	if err != nil || before != 60 {
		t.Fatalf("%d connections, %v, want 3 for each of 20 workers", before, err)
	}
	most := 0
	for victim := range c.Workers {
		_, opened, err := simulateDeath(c, victim)
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, opened)
	}
	// 57 connections are enough without the dead, and slack keeps most of those there are.
	if most < 1 || most > 12 {
		t.Errorf("at most %d connections are opened", most)
	}
}

// fake is reality that behaves as the first draw of the model, except for the changes.
func fake(change func(*reality)) observer {
	return func(_ context.Context, c Case, requests []request, victim int, step func()) (reality, error) {
		_, seen, err := simulate(c, 0)
		if err != nil {
			return reality{}, err
		}
		before, opened, err := simulateDeath(c, victim)
		out := reality{observation: seen, planned: true, connections: before, opened: opened, inRelay: mean(seen.latencies)}
		change(&out)
		return out, err
	}
}

func TestEachPromiseCanFail(t *testing.T) {
	if raceDetector {
		t.Skip("seven whole simulations: make test runs them without the race detector")
	}
	set := []string{"relays=6", "workers=20", "measured=40s"} // so that chance is small
	broken := func(change func(*reality)) scenariotest.Break {
		return scenariotest.Break{Set: set, Scenario: with(selection.DefaultConfig(), fake(change))}
	}
	stretch := func(from float64) func(*reality) {
		return func(r *reality) {
			slices.Sort(r.latencies)
			for i := int(from * float64(len(r.latencies))); i < len(r.latencies); i++ {
				r.latencies[i] = r.latencies[i] * 5 / 4
			}
		}
	}
	scenariotest.EachCanFail(t, with(selection.DefaultConfig(), fake(func(*reality) {})), map[string]scenariotest.Break{
		median:   broken(stretch(0.3)),
		tail:     broken(stretch(0.98)),
		shares:   broken(evenly),
		moved:    broken(func(r *reality) { r.opened++ }),
		ranges:   broken(func(r *reality) { r.planned = false }),
		answered: broken(func(r *reality) { r.failed, r.errors = 1, []error{errors.New("refused")} }),
	})
}

// evenly is what relays do that know nothing of workers.
func evenly(r *reality) {
	n := total(r.byWorker) / len(r.byWorker)
	for i := range r.byWorker {
		r.byWorker[i] = n
	}
}

func TestSidesThatCannotBeComparedAreRefused(t *testing.T) {
	for _, set := range [][]string{{"workers=6"}, {"relays=4", "workers=5"}} {
		_, err := scenario.Execute(context.Background(), New(), scenario.Options{Seed: 1, Quick: true, Set: set})
		if err == nil || !strings.Contains(err.Error(), "multiple") {
			t.Errorf("%v: %v", set, err)
		}
	}
}

// The machinery with real processes. How long anything takes is no measure here: other tests run
// at the same time.
func TestAFleetOfProcessesAnswersEveryRequest(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	c := Case{Relays: 3, Workers: 5, Load: 0.1, Measured: time.Second, Seed: 1, selection: selection.DefaultConfig()}
	requests, _, err := simulate(c, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, opened, err := simulateDeath(c, 0)
	if err != nil {
		t.Fatal(err)
	}
	steps := 0
	real, err := observeReality(t.Context(), c, requests, 0, func() { steps++ })
	if err != nil {
		t.Fatal(err)
	}
	if !real.planned || real.failed > 0 || len(real.errors) > 0 || real.connections != 15 || real.opened != opened || steps != realitySteps {
		t.Errorf("planned alike: %v; %d requests failed, such as %v; %d connections, %d opened, in the model %d; %d steps",
			real.planned, real.failed, real.errors, real.connections, real.opened, opened, steps)
	}
	counted := 0
	for _, r := range requests {
		if r.measured() {
			counted++
		}
	}
	if got := total(real.byWorker); got != counted || len(real.latencies) != counted {
		t.Errorf("%d of %d requests are counted, with %d latencies", got, counted, len(real.latencies))
	}
	if real.overhead <= 0 || real.inRelay <= 0 || real.noticed <= 0 {
		t.Errorf("overhead %v, mean in the relays %v, death noticed after %v", real.overhead, real.inRelay, real.noticed)
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}
