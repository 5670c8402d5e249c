package latency

import (
	"context"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/sims/internal/policy"
	"github.com/ringway/ringway/sims/internal/queueing"
	"github.com/ringway/ringway/sims/internal/scenario"
	"github.com/ringway/ringway/sims/internal/scenario/scenariotest"
)

// The smallest topology; the full grid is sims run latency.
func TestOurSelectionKeepsWhatIsPromised(t *testing.T) {
	if raceDetector {
		t.Skip("runs without the race detector")
	}
	r := scenariotest.Holds(t, New(), "policies=peak-ewma", "loads=0.5,0.7,0.9")
	for _, v := range r.Verdicts {
		t.Log(v)
		if v.Skipped != "" {
			t.Errorf("%s was not checked", v.Name)
		}
	}
}

// Each promise is broken by a policy in use elsewhere, or by a setting.
func TestEachPromiseCanFail(t *testing.T) {
	if raceDetector {
		t.Skip("runs without the race detector")
	}
	one := func(set ...string) scenariotest.Break {
		return scenariotest.Break{Set: append([]string{"loads=0.9", "policies=peak-ewma", "seeds=1", "low-rate=false", "ramp=false", "unequal=false"}, set...)}
	}
	scenariotest.EachCanFail(t, New(), map[string]scenariotest.Break{
		typical:    one("judged=least-request", "scenarios=hetero", "loads=0.5"),
		nearBest:   one("redraws=0", "scenarios=equal,hetero,bimodal"),
		tail:       one("redraws=0", "scenarios=equal,hetero,bimodal"),
		notWorse:   one("judged=least-request", "scenarios=hetero"),
		tailToo:    one("judged=least-request", "scenarios=hetero"),
		failFast:   one("judged=ewma", "scenarios=failfast"),
		background: one("consecutive-failures=1", "error-rate-threshold=0.5", "scenarios=background", "loads=0.9"),
		recovered:  one("judged=ewma", "scenarios=recovery"),
		narrows:    one("endpoint-rate=0", "scenarios=equal", "low-rate=true"),
		overloaded: one("judged=round-robin", "scenarios=overload"),
		through:    one("judged=round-robin", "scenarios=overload", "ramp=true"),

		evenRendezvous: one("scenarios=overload", "unequal=true", "traffic-error=1", "redraws=0", "unequal-loads=0.98"),
		evenProjection: one("scenarios=overload", "unequal=true", "traffic-error=1", "unequal-loads=0.9"),
		evenZones:      one("scenarios=overload", "unequal=true", "traffic-error=1", "unequal-loads=0.9"),
	})
}

func TestItRepeats(t *testing.T) {
	scenariotest.Repeats(t, New(), "loads=0.1", "seeds=2", "scenarios=failfast,background", "policies=prequal-0.6,peak-ewma", "low-rate=false", "ramp=false", "unequal=false")
}

func TestCellsThatAreNotRunAreNotJudged(t *testing.T) {
	r := scenariotest.Run(t, New(), "loads=0.1", "seeds=1", "scenarios=equal", "policies=round-robin", "low-rate=false", "ramp=false", "unequal=false")
	for _, v := range r.Verdicts {
		if ran := v.Name == typical || v.Name == nearBest || v.Name == tail; (v.Skipped == "") != ran {
			t.Errorf("%v", v)
		}
	}
	if r.Table("special") != nil {
		t.Error("a table of special cells without any")
	}
}

// Figures that keep everything, spoilt one at a time, in one cell of many.
func TestTheWorstCellIsJudged(t *testing.T) {
	for _, c := range []struct {
		promise, kind string
		value         float64
		spoil         func(*row)
	}{
		{notWorse, "hetero", 1.5, func(r *row) { r.p99 = 150 }},
		{tailToo, "hetero", 1.5, func(r *row) { r.p999 = 300 }},
		{failFast, "failfast", 0.2, func(r *row) { r.victimMax = 0.2 }},
		{background, "background", 1, func(r *row) { r.evictions = 1 }},
		{recovered, "recovery", 0.6, func(r *row) { r.victimMean = 0.6 }},
		{overloaded, "overload", 0.02, func(r *row) { r.excessErrors = 0.02 }},
		{typical, "", 1.16, func(r *row) { r.p50Ratio = 1.16 }},
		{nearBest, "", 1.16, func(r *row) { r.p99Ratio = 1.16 }},
		{tail, "", 1.21, func(r *row) { r.p999Ratio = 1.21 }},
	} {
		s := New()
		s.Run = func(r *scenario.Run) error {
			g, rows := gridOf(r), []row(nil)
			for i := range g.cells {
				for _, name := range []string{policy.PeakEWMA.Name, ours} {
					next := row{cell: &g.cells[i], policy: name, p99: 100, p999: 200, p50Ratio: 1, p99Ratio: 1, p999Ratio: 1, victimMean: 0.8, victimMax: 0.09}
					if worst := next.load >= 0.9 && next.place == "5x20" && next.scenario.Name == c.kind; name == ours && (worst || c.kind == "") {
						c.spoil(&next)
					}
					rows = append(rows, next)
				}
			}
			judge(r, rows, ours)
			return nil
		}
		for _, v := range scenariotest.Run(t, s, "topologies=5x20,20x200").Verdicts {
			if slices.Contains([]string{through, narrows, evenRendezvous, evenProjection, evenZones}, v.Name) {
				continue
			}
			if v.Holds() != (v.Name != c.promise) || v.Skipped != "" || v.Name == c.promise && math.Abs(v.Value-c.value) > 1e-9 {
				t.Errorf("%s spoilt: %v", c.promise, v)
			}
		}
	}
}

// gridWith returns the grid that settings ask for, without running it.
func gridWith(t *testing.T, set ...string) (g grid) {
	t.Helper()
	s := New()
	s.Run = func(r *scenario.Run) error {
		g = gridOf(r)
		judge(r, nil, ours)
		return nil
	}
	scenariotest.Run(t, s, set...)
	return g
}

func TestTheFullGridIsThatOfThePromise(t *testing.T) {
	kinds := map[string]int{}
	for _, c := range gridWith(t, "topologies=100x1000", "loads=0.5,0.7,0.9").cells {
		kinds[c.scenario.Name]++
	}
	want := map[string]int{
		"equal": 3, "hetero": 3, "bimodal": 3, "failfast": 3, "degrade": 3, "join": 3,
		"background": 3, "recovery": 3, "overload": 1,
	}
	if !maps.Equal(kinds, want) {
		t.Errorf("cells are %v, want %v", kinds, want)
	}
	if g := gridWith(t); len(g.policies) != 7 {
		t.Errorf("%d policies", len(g.policies))
	}
}

func TestSettingsChooseWhatRuns(t *testing.T) {
	g := gridWith(t, "topologies=20x200", "ranges=rendezvous", "policies=ewma", "judged=round-robin", "seeds=0", "scenarios=join")
	var names []string
	for _, p := range g.policies {
		names = append(names, p.Name)
	}
	if len(names) != 3 || names[0] != "omniscient" || names[1] != "ewma" || names[2] != "round-robin" {
		t.Errorf("policies are %v", names)
	}
	for _, c := range g.cells {
		if !c.topology.Rendezvous || c.seeds != 2 || c.scenario.Name != "join" {
			t.Errorf("%+v", c)
		}
	}
}

// Every setting of ours reaches the balancer: no run with it is like the one without.
func TestEachSettingOfOursChangesTheRun(t *testing.T) {
	run := func(set ...string) float64 {
		all := append([]string{"loads=0.9", "seeds=1", "scenarios=failfast,background,hetero", "policies=omniscient", "low-rate=false", "ramp=false", "unequal=false"}, set...)
		r := scenariotest.Run(t, New(), all...)
		total := 0.0
		for _, name := range []string{"p99", "special", "traffic"} {
			for _, line := range r.Table(name).Rows {
				for i, cell := range line {
					if v, ok := cell.(float64); ok {
						total += v * float64(i+1)
					}
				}
			}
		}
		return total
	}
	normal := run()
	for _, set := range []string{"redraws=1", "alpha=0.1", "slow-start=0s", "consecutive-failures=1", "error-rate-threshold=0.001", "max-eviction=1s", "latency-factor=1.5"} {
		if run(set) == normal {
			t.Errorf("%s changes nothing", set)
		}
	}
}

// A plan that knows the traffic of relays loads its fullest worker as it states, and less than one
// that does not know.
func TestDemandThatIsKnownIsEvened(t *testing.T) {
	fullest := map[string]float64{}
	for _, d := range demands() {
		a, err := d.allot(0, rand.New(rand.NewPCG(1, 1)))
		if err != nil {
			t.Fatal(err)
		}
		name := d.name + ", " + d.knows() + ", " + string(d.strategy)
		fullest[name] = a.fullest
		if d.known && math.Abs(a.fullest-a.bound) > 1e-5 {
			t.Errorf("%s: the fullest worker has %v times the mean, and the plan says %v", name, a.fullest, a.bound)
		}
		if d.known && d.strategy == affinity.Rendezvous && a.fullest > 1.00001 {
			t.Errorf("%s: the fullest worker has %v times the mean", name, a.fullest)
		}
		if d.slack == (affinity.PlanConfig{}).WithDefaults().ZoneSlack && d.known && math.Abs(a.fullest-d.slack) > 1e-5 {
			t.Errorf("%s: the fullest worker has %v times the mean", name, a.fullest)
		}
		if !d.known && d.zones == 0 && a.bound > 1.00001 {
			t.Errorf("%s: the plan says %v for equal traffic", name, a.bound)
		}
	}
	for name, load := range fullest {
		if unknown, found := fullest[strings.Replace(name, ", known", ", unknown", 1)]; found && strings.Contains(name, ", known") && load >= unknown {
			t.Errorf("%s: the fullest worker has %v times the mean, and %v if the plan knows nothing", name, load, unknown)
		}
	}
	if n := len(fullest); n != 2+2*4+3 {
		t.Errorf("%d kinds of traffic: %v", n, fullest)
	}
}

// The plan that knows nothing is the one whose error is the whole difference.
func TestAnErrorOfOneIsToKnowNothing(t *testing.T) {
	all := demands()
	known, unknown := all[6], all[8]
	if known.name != unknown.name || !known.known || unknown.known || known.strategy != unknown.strategy {
		t.Fatalf("compares %v with %v", known, unknown)
	}
	a, err := known.allot(1, nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := unknown.allot(0, nil)
	if err != nil || a.fullest != b.fullest || a.bound != b.bound {
		t.Errorf("fullest %v and %v, bound %v and %v; %v", a.fullest, b.fullest, a.bound, b.bound, err)
	}
}

func TestSmallTopologiesGetMoreRuns(t *testing.T) {
	for i, want := range []int{6, 2, 1} {
		if got := seedsFor(topologies[i].Topology); got != want {
			t.Errorf("%s: %d runs, want %d", topologies[i].name, got, want)
		}
	}
}

func TestTheNoiseIsTheStandardErrorOfTheMean(t *testing.T) {
	if got := standardError([]float64{1, 2, 3}); math.Abs(got-1/math.Sqrt(3)/2) > 1e-12 {
		t.Errorf("%v", got)
	}
	if got := standardError([]float64{1}); !math.IsNaN(got) {
		t.Errorf("of one run: %v", got)
	}
}

func TestACurveEndsWhereChanceBegins(t *testing.T) {
	c := cell{topology: topologies[0].Topology, scenario: queueing.Equal, load: 0.1, seeds: 1}
	one, err := queueing.Run(queueing.Config{Topology: c.topology, Scenario: c.scenario, Policy: policy.Random, Load: c.load, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	r := newRow(&c, "random", &one) // 4499 requests
	if n := len(r.curve); curveAt[n-1] != 300 || r.curve[0] != r.p50 {
		t.Errorf("it ends at one in %v", curveAt[n-1])
	}
}

// Equal work makes an answer take the same time at any load that needs no queue, whatever the
// policy, and its scale does not count.
func TestServiceTimesOfAFileReplaceTheModel(t *testing.T) {
	p99 := func(rows string) float64 {
		path := filepath.Join(t.TempDir(), "times.csv")
		if err := os.WriteFile(path, []byte("service_s\n"+rows), 0o600); err != nil {
			t.Fatal(err)
		}
		r := scenariotest.Run(t, New(), "loads=0.1", "seeds=1", "scenarios=background", "policies=omniscient", "judged=omniscient", "low-rate=false", "unequal=false", "service-times="+path)
		return r.Table("special").Rows[0][4].(float64)
	}
	// 25 ms of work and 0.5 ms on the network.
	if ms := p99("0.003\n"); math.Abs(ms-25.5) > 0.1 {
		t.Errorf("p99 is %v ms", ms)
	}
	if ms := p99("1\n3\n"); math.Abs(ms-38) > 0.1 {
		t.Errorf("p99 is %v ms", ms)
	}
	_, err := scenario.Execute(context.Background(), New(), scenario.Options{Quick: true, Set: []string{"service-times=nothing.csv"}})
	if err == nil || !strings.Contains(err.Error(), "service-times: open nothing.csv") {
		t.Errorf("%v", err)
	}
}
