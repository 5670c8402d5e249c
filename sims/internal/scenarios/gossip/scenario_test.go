package gossip

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/sims/internal/scenario"
	"github.com/ringway/ringway/sims/internal/scenario/scenariotest"
)

// Whole runs take minutes under the race detector; TestEveryKnobChangesWhatIsMeasured runs
// fleets under it.
func skipUnderRace(t *testing.T) {
	t.Helper()
	if raceDetector {
		t.Skip("takes minutes under the race detector")
	}
}

func TestTheScenarioHolds(t *testing.T) {
	skipUnderRace(t)
	r := scenariotest.Holds(t, New())
	for _, v := range r.Verdicts {
		t.Log(v)
	}
}

func TestEachPromiseCanFail(t *testing.T) {
	skipUnderRace(t)
	// skewed are results of no fleet, in which one thing grows as it must not.
	skewed := func(change func(f *Result, n float64)) scenario.Scenario {
		return with(func(cfg Config) (Result, error) {
			f := plausible(cfg)
			change(&f, float64(cfg.Members))
			return f, nil
		})
	}
	// What a law predicts of a few events of a real fleet is a matter of chance.
	even := skewed(func(*Result, float64) {})
	deaf := scenariotest.Break{Set: []string{"members=12", "events=1", "loss=1"}}
	lonely := scenariotest.Break{Set: append(deaf.Set, "exchange-interval=1h")}
	scenariotest.EachCanFail(t, New(), map[string]scenariotest.Break{
		joined: deaf, left: deaf, crashed: deaf, converged: lonely, noDeath: deaf,
		quiet:   {Set: []string{"members=12", "events=1", "exchange-interval=100ms"}},
		quietAt: {Set: []string{"members=15,30", "events=1", "predict=1000000"}},
		timesFit: {Set: []string{"members=10,15,40", "events=1", "burst=0.5"}, Intact: even, Scenario: skewed(func(f *Result, n float64) {
			f.Events[Leave][0].Most = time.Duration(n*n) * time.Millisecond
		})},
		bytesFit: {Set: []string{"members=10,15,40", "events=1", "burst=0.5"}, Intact: even, Scenario: skewed(func(f *Result, n float64) {
			f.Idle.PacketBytes = n * n
		})},
	})
}

// plausible are results that hold.
func plausible(cfg Config) Result {
	n := float64(cfg.Members)
	f := Result{Members: cfg.Members, Events: map[Kind][]Event{}, Idle: Traffic{Packets: 120, PacketBytes: 9000, StreamBytes: 5000 + 200*exchanges.grow(n)}}
	for _, k := range Kinds() {
		took := time.Duration(math.Log10(n) * float64(time.Second) / 3)
		f.Events[k] = append(f.Events[k], Event{Most: took, Last: took, Gossip: 2000 * copies.grow(n), Streamed: 500 * n})
		if k == Burst {
			f.Events[k][0].Gossip = 5 * share.grow(n)
		}
	}
	return f
}

func TestResultsThatGrowAsTheyMustHold(t *testing.T) {
	r := scenariotest.Holds(t, with(func(cfg Config) (Result, error) { return plausible(cfg), nil }), "members=50,200,500")
	table := r.Table("laws")
	if len(table.Rows) != len(quantities()) {
		t.Fatalf("%d laws of %d quantities", len(table.Rows), len(quantities()))
	}
	for _, row := range table.Rows {
		if e := row[5].(float64); math.Abs(e) > 0.01 {
			t.Errorf("%v: the law of its own shape is off by %v %%", row[0], e)
		}
	}
}

func TestALawNeedsThreeSizes(t *testing.T) {
	r := scenariotest.Holds(t, with(func(cfg Config) (Result, error) { return plausible(cfg), nil }), "members=50,200")
	skipped := 0
	for _, v := range r.Verdicts {
		if strings.Contains(v.Skipped, "three sizes") {
			skipped++
		}
	}
	if skipped != 2 {
		t.Errorf("%d promises skipped, want both laws", skipped)
	}
}
