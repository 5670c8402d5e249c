package queueing

import (
	"math"
	"testing"
	"time"

	"github.com/ringway/ringway/selection"
)

func rushed(c Callers, rush float64) Config {
	return Config{
		Scenario: Scenario{Name: "rush", End: at(16), Rush: Rush{From: at(8), To: at(12), Factor: rush}},
		Load:     0.3, Seed: 1, Callers: &c,
	}
}

func total(seconds []Second) (s Second) {
	for _, one := range seconds {
		s.Requests += one.Requests
		s.Served += one.Served
		s.Attempts += one.Attempts
		s.Refused += one.Refused
		s.Wasted += one.Wasted
	}
	return s
}

func TestARushMultipliesTheArrivals(t *testing.T) {
	seconds := mustRun(t, rushed(Callers{Timeout: time.Hour, Attempts: 1}, 2)).Seconds
	before, rush, after := total(seconds[:8]).Requests, total(seconds[8:12]).Requests, total(seconds[12:]).Requests
	for what, ratio := range map[string]float64{"before": float64(rush) / float64(before), "after": float64(rush) / float64(after)} {
		if want := map[string]float64{"before": 1, "after": 2}[what]; math.Abs(ratio/want-1) > 0.05 {
			t.Errorf("%d, %d and %d requests", before, rush, after)
		}
	}
}

func TestCallersWithPatienceChangeNothing(t *testing.T) {
	cfg := Config{Scenario: Equal, Load: 0.7, Seed: 3}
	plain := mustRun(t, cfg)
	cfg.Callers = &Callers{Timeout: time.Hour, Attempts: 5}
	patient := mustRun(t, cfg)
	if !plain.latency.Equals(patient.latency) || plain.Requests != patient.Requests {
		t.Errorf("%d requests, p99 %v; with callers %d and %v", plain.Requests, plain.Percentile(99), patient.Requests, patient.Percentile(99))
	}
	if s := total(patient.Seconds); s.Requests != s.Served || s.Attempts != s.Requests || s.Wasted+s.Refused > 0 {
		t.Errorf("%+v", s)
	}
}

func TestEachRequestIsTriedAsOftenAsAllowed(t *testing.T) {
	// Everything takes longer than any caller waits.
	for attempts := 1; attempts <= 4; attempts++ {
		r := mustRun(t, rushed(Callers{Timeout: time.Microsecond, Attempts: attempts}, 1))
		if s := total(r.Seconds); s.Attempts != attempts*s.Requests || s.Served != 0 || s.Wasted != s.Attempts || r.ErrorShare() != 1 {
			t.Errorf("%d attempts: %+v", attempts, s)
		}
	}
}

func TestABudgetBoundsWhatIsTriedAgain(t *testing.T) {
	const savings = 100
	for _, share := range []float64{0, 0.2, 0.5} {
		s := total(mustRun(t, rushed(Callers{Timeout: time.Microsecond, Attempts: 100, Budgeted: true, Share: share, Savings: savings}, 1)).Seconds)
		least, most := share*float64(s.Requests)-5, share*float64(s.Requests)+5*(savings+1)
		if retries := float64(s.Attempts - s.Requests); retries < least || retries > most {
			t.Errorf("share %v: %v retries for %d requests", share, retries, s.Requests)
		}
	}
}

func TestNoMoreIsInFlightThanAllowed(t *testing.T) {
	cfg := rushed(Callers{Timeout: time.Hour, Attempts: 1, MaxInFlight: 30}, 10)
	cfg.QueueBound = math.MaxInt
	r := mustRun(t, cfg)
	s := total(r.Seconds)
	if s.Refused == 0 || s.Served != s.Requests-s.Refused {
		t.Errorf("%+v", s)
	}
	// 150 requests for 80 slots: on average two rounds of 25 ms, at random workers.
	if p50 := r.Percentile(50); p50 > 150*time.Millisecond {
		t.Errorf("half take longer than %v", p50)
	}
}

func TestAScriptChangesWorkersRangesAndWhoSends(t *testing.T) {
	seen := map[int32]int{}
	outcomes := map[Outcome]int{}
	cfg := Config{Scenario: Scenario{Name: "script", End: at(20)}, Load: 0.2, Seed: 1, Policy: telling(func(t Ticket, a Answer) {
		if a.Start >= at(12) {
			seen[t.Worker]++
			outcomes[a.Outcome]++
		}
	})}
	cfg.Script = []Step{
		{at(10), func(f *Fleet) { f.Turn(3, Turn{Slow: 1, Failing: true}) }},
		{at(11), func(f *Fleet) { f.Range(2, []Endpoint{{Worker: 3, Weight: 1}, {Worker: 4, Weight: 1}}) }},
		{at(12), func(f *Fleet) { f.Send([]int{2}) }},
	}
	mustRun(t, cfg)
	if len(seen) != 2 || seen[3] == 0 || seen[4] == 0 || outcomes[Failure] != seen[3] {
		t.Errorf("requests at %v, outcomes %v", seen, outcomes)
	}
}

func TestRangesMayBeGiven(t *testing.T) {
	seen := map[int32]int{}
	cfg := Config{Topology: Topology{Clients: 2, Workers: 4}, Scenario: Equal, Load: 0.1, Seed: 1, Policy: telling(func(t Ticket, _ Answer) { seen[t.Worker]++ })}
	cfg.Ranges = [][]Endpoint{{{Worker: 1, Weight: 1}}, {{Worker: 2, Weight: 1}}}
	mustRun(t, cfg)
	if len(seen) != 2 || seen[1] == 0 || seen[2] == 0 {
		t.Errorf("requests at %v", seen)
	}
}

func TestClientsSendInProportionToTheirTraffic(t *testing.T) {
	run := func(script ...Step) map[int32]float64 {
		seen := map[int32]float64{}
		cfg := Config{Topology: Topology{Clients: 3, Workers: 4}, Scenario: Scenario{Name: "long", End: at(200)}, Load: 0.5, Seed: 1, Script: script}
		cfg.Policy = telling(func(t Ticket, a Answer) {
			if a.Start >= at(1) {
				seen[t.Worker]++
			}
		})
		cfg.Ranges = [][]Endpoint{{{Worker: 0, Weight: 1}}, {{Worker: 1, Weight: 1}}, {{Worker: 2, Weight: 1}}}
		cfg.Traffic = []float64{0.5, 2, 1}
		mustRun(t, cfg)
		return seen
	}
	seen := run()
	if n := seen[2]; math.Abs(seen[0]/n-0.5) > 0.02 || math.Abs(seen[1]/n-2) > 0.05 {
		t.Errorf("requests %v, want 1 to 4 to 2", seen)
	}
	seen = run(Step{at(0), func(f *Fleet) { f.Send([]int{0, 2}) }})
	if seen[1] != 0 || math.Abs(seen[0]/seen[2]-0.5) > 0.02 {
		t.Errorf("requests %v, want 1 to 0 to 2", seen)
	}
}

// probing never probes, but could.
type probing struct{ *anyPolicy }

func (probing) Probed(Probe, selection.Instant) {}

func TestAPolicyThatProbesCannotHaveLongerQueues(t *testing.T) {
	p := telling(nil)
	plain := p.New
	p.New = func(env Env) Client { return probing{plain(env).(*anyPolicy)} }
	for bound, want := range map[int]bool{0: true, QueueBound: true, 1000: false} {
		_, err := Run(Config{Topology: small, Scenario: Scenario{End: at(1)}, Load: 0.1, Seed: 1, Policy: p, QueueBound: bound})
		if (err == nil) != want {
			t.Errorf("QueueBound %d: %v", bound, err)
		}
	}
}

func TestARushComesAgain(t *testing.T) {
	cfg := rushed(Callers{Timeout: time.Hour, Attempts: 1}, 3)
	cfg.Scenario.Rush = Rush{From: at(2), To: at(3), Factor: 3, Every: at(2)}
	seconds := mustRun(t, cfg).Seconds
	usual := seconds[0].Requests + seconds[1].Requests
	for i := 2; i < 16; i += 2 {
		if rush, rest := float64(seconds[i].Requests), float64(seconds[i+1].Requests); math.Abs(rush/float64(usual)-1.5) > 0.15 || math.Abs(rest/float64(usual)-0.5) > 0.05 {
			t.Errorf("%v requests in second %d and %v in the next, %d in the first two", rush, i, rest, usual)
		}
	}
}

// gate refuses every third attempt and counts the reports.
type gate struct{ asked, taken, answered, left, gaveUp, refreshed int }

func (g *gate) Enter(selection.Instant) bool {
	g.asked++
	if g.asked%3 == 0 {
		return false
	}
	g.taken++
	return true
}
func (g *gate) Answered(time.Duration, selection.Instant) { g.answered++ }
func (g *gate) Left()                                     { g.left++ }
func (g *gate) GaveUp(time.Duration)                      { g.gaveUp++ }
func (g *gate) Refresh(selection.Instant)                 { g.refreshed++ }

func TestAGateDecidesWhatIsTakenAndHearsHowItEnded(t *testing.T) {
	var gates []*gate
	cfg := rushed(Callers{Timeout: 100 * time.Millisecond, Attempts: 2, Gate: func(int) Gate {
		gates = append(gates, new(gate))
		return gates[len(gates)-1]
	}}, 2)
	cfg.Scenario.Background = 0.1
	s := total(mustRun(t, cfg).Seconds)
	var all gate
	for _, g := range gates {
		all.asked += g.asked
		all.taken += g.taken
		all.answered += g.answered
		all.left += g.left
		all.gaveUp += g.gaveUp
		if g.refreshed < 60 {
			t.Errorf("a gate was refreshed %d times in 16 s", g.refreshed)
		}
	}
	if all.asked != s.Attempts || all.asked-all.taken != s.Refused || all.answered != s.Served || all.taken != all.answered+all.left+all.gaveUp {
		t.Errorf("the gates heard of %+v, the callers of %+v", all, s)
	}
	if all.left == 0 || all.gaveUp == 0 || all.answered == 0 {
		t.Errorf("something did not happen: %+v", all)
	}
}
