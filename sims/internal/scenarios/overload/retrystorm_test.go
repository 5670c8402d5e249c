package overload

import (
	"math"
	"testing"

	"github.com/ringway/ringway/sims/internal/queueing"
	"github.com/ringway/ringway/sims/internal/scenario"
	"github.com/ringway/ringway/sims/internal/scenario/scenariotest"
)

// short is enough for an overload.
var short = []string{"relays=3", "rush-time=4s", "after=5s"}

func with(set ...string) []string { return append(append([]string{}, short...), set...) }

func TestEachPromiseAboutRetriesCanFail(t *testing.T) {
	if raceDetector {
		t.Skip("runs without the race detector")
	}
	scenariotest.EachCanFail(t, RetryStorm(), map[string]scenariotest.Break{
		stormGoodput: {Set: with("shedding=false", "rush=2.5")},
		recovers:     {Set: with("shedding=false")},
		amplified:    {Set: with("budget=false")},
	})
}

func TestARetryStormRepeats(t *testing.T) { scenariotest.Repeats(t, RetryStorm(), with("load=0.3")...) }

// runOf runs one defence with settings.
func runOf(t *testing.T, d defence, set ...string) (o storm) {
	t.Helper()
	s := RetryStorm()
	s.Run = func(r *scenario.Run) (err error) {
		o, err = runStorm(r, d)
		for _, p := range s.Promises {
			r.Skip(p.Name, "one storm alone")
		}
		return err
	}
	scenariotest.Run(t, s, with(set...)...)
	return o
}

var (
	neither  = defence{retries: true}
	shedding = defence{retries: true, shedding: true}
)

func TestARetryStormOutlivesTheRush(t *testing.T) {
	o := runOf(t, neither)
	if o.after > 0.05 || o.stays < 4 {
		t.Errorf("after the rush %.1f %% of the requests are in time with neither budget nor shedding, at %.1f attempts each", 100*o.after, o.stays)
	}
}

func TestEachSettingChangesTheStorm(t *testing.T) {
	if raceDetector {
		t.Skip("runs without the race detector")
	}
	inRush := func(o storm) float64 { return o.amplified }
	atEnd := func(o storm) float64 { return o.stays }
	inTime := func(o storm) float64 { return o.after }
	for _, c := range []struct {
		defence
		measure    func(storm) float64
		less, more string
	}{
		{neither, atEnd, "attempts=2", "attempts=5"},
		{defence{true, true, true}, inRush, "share=0.1", "share=0.5"},
		{shedding, inTime, "max-in-flight=100000", "max-in-flight=300"},
		{neither, inRush, "timeout=5s", "timeout=500ms"},
		{shedding, inRush, "backoff=2s", "backoff=10ms"},
		{shedding, inRush, "rush=1.3", "rush=3"},
		{defence{}, inTime, "load=0.95", "load=0.5"},
	} {
		if less, more := c.measure(runOf(t, c.defence, c.less)), c.measure(runOf(t, c.defence, c.more)); less >= more {
			t.Errorf("%v: %v with %s, %v with %s", c.defence, less, c.less, more, c.more)
		}
	}
}

func TestSecondsOfAStormAreJudgedByWhenTheyAre(t *testing.T) {
	seconds := []queueing.Second{
		{Requests: 100, Served: 100, Attempts: 100},
		{Requests: 200, Served: 90, Attempts: 300}, // the rush
		{Requests: 100, Served: 50, Attempts: 100, Wasted: 7}, {Requests: 100, Served: 90, Attempts: 150},
		{Requests: 100, Served: 100, Attempts: 100},
		{Attempts: 1000}, // what comes late
	}
	got := judgeStorm(seconds, 1, 2, 100)
	for what, pair := range map[string][2]float64{
		"goodput": {got.goodput, 0.9}, "amplified": {got.amplified, 1.5}, "after": {got.after, 0.8},
		"recovers": {got.recovers, 2}, "wasted": {float64(got.wasted), 7}, "stays": {got.stays, 350.0 / 300},
	} {
		if math.Abs(pair[0]-pair[1]) > 1e-9 {
			t.Errorf("%s is %v, want %v", what, pair[0], pair[1])
		}
	}
}
