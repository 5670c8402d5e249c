package planner

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/selection"
	"github.com/ringway/ringway/sims/internal/policy"
	"github.com/ringway/ringway/sims/internal/scenario"
	"github.com/ringway/ringway/sims/internal/scenario/scenariotest"
	"github.com/ringway/ringway/sims/internal/scenarios/capacity"
)

// small is a fleet that is simulated fast.
var small = []string{"workers=40", "rate=2000", "p99=250ms"}

func with(set ...string) []string { return append(append([]string{}, small...), set...) }

func TestEachPromiseCanFail(t *testing.T) {
	scenariotest.Holds(t, New(), small...)
	scenariotest.EachCanFail(t, New(), map[string]scenariotest.Break{
		inTime: {Set: with("p99=100ms")},
		fits:   {Set: with("relays=3", "m=3")},
	})
}

func TestItRepeats(t *testing.T) { scenariotest.Repeats(t, New(), with("m=3")...) }

// value returns a value of the answer.
func value(t *testing.T, r *scenario.Result, what string) float64 {
	t.Helper()
	for _, row := range r.Table("answer").Rows {
		if row[0] != what {
			continue
		}
		switch v := row[1].(type) {
		case int:
			return float64(v)
		case float64:
			return v
		}
	}
	t.Fatalf("the answer has no %s", what)
	return 0
}

// The reason why a relay less is not enough names the setting which is the tightest.
func TestAFleetWithARelayLessExceedsALimit(t *testing.T) {
	for says, set := range map[string][]string{
		"CPU of a relay":         {"cpu-per-request=2ms"},
		"descriptors of a relay": {"clients=40000", "descriptors=10000"},
		"memory of a relay":      {"clients=40000", "memory=60"},
		"none can be lost":       nil,
	} {
		r := scenariotest.Holds(t, New(), with(append(set, "m=3", "p=3")...)...)
		relays := value(t, r, "relays")
		found := false
		for _, row := range r.Table("alternatives").Rows {
			if row[0] == int(relays)-1 {
				found = strings.HasPrefix(row[8].(string), "no: ") && strings.Contains(row[8].(string), says)
			}
		}
		if !found {
			t.Errorf("%v: %v relays, and one less is not refused because of %s: %v", set, relays, says, r.Table("alternatives").Rows)
		}
	}
}

func TestWithoutAnAnswerTheReasonIsNamed(t *testing.T) {
	for says, set := range map[string][]string{
		"the service times themselves: 1 of 100 takes longer than 15":    {"p99=150ms"},
		"the workers: they would use 125 % of their slots":               {"rate=8000"},
		"53 workers are the least":                                       {"rate=8000"},
		"even a policy that knows every queue has":                       {"workers=10", "slots=1", "rate=360", "p99=220ms"},
		"workers would be enough":                                        {"workers=10", "slots=1", "rate=360", "p99=220ms"},
		"kB/s, at most 1":                                                {"bandwidth=1"},
		"3 relays for m = 3: each is connected to all workers, and none": {"relays-per-service=3", "m=3"},
	} {
		text := ""
		for _, v := range scenariotest.Run(t, New(), with(set...)...).Violations() {
			text += v.String() + "\n"
		}
		if !strings.Contains(text, says) {
			t.Errorf("%v: %q is missing in\n%s", set, says, text)
		}
	}
}

func TestWhatCannotBePlannedIsRefused(t *testing.T) {
	none := filepath.Join(t.TempDir(), "times.csv")
	if err := os.WriteFile(none, []byte("service_ms\n1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for says, set := range map[string]string{
		"m=2: allowed is 3 or more":    "m=2",
		"each offers one service":      "services=41",
		"service-times: open nothing":  "service-times=nothing",
		"arrivals: open nothing":       "arrivals=nothing",
		"needs a column arrival_ms":    "arrivals=" + none,
		"allowed is a whole number fr": "workers=0",
		// A result knows no times beyond ten minutes, so a longer p99 would always hold.
		"from 1ms to 5m0s":            "p99=6m",
		"at most 50000 are simulated": "rate=1e7,slots=100000",
	} {
		_, err := scenario.Execute(t.Context(), New(), scenario.Options{Quick: true, Set: with(strings.Split(set, ",")...)})
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q in it", set, err, says)
		}
	}
}

func TestMeasuredServiceTimesAndArrivalsAreUsed(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	times := file("times.csv", "service_ms\n10\n")
	r := scenariotest.Holds(t, New(), with("m=3", "p99=11ms", "service-times="+times)...)
	if ms := value(t, r, "p99"); math.Abs(ms-10.5) > 0.1 {
		t.Errorf("requests of 10 ms take %v ms", ms)
	}
	if use := value(t, r, "slots of workers in use"); math.Abs(use-12.5) > 0.01 {
		t.Errorf("%v %% of the slots are in use", use)
	}
	// 300 requests that arrive together wait at the 160 slots.
	text := "service_ms,arrival_ms\n"
	for i := range 3000 {
		text += fmt.Sprintf("10,%d\n", i/300*1000)
	}
	r = scenariotest.Run(t, New(), with("m=3", "p99=11ms", "service-times="+times, "arrivals="+file("bursts.csv", text))...)
	if ms := value(t, r, "p99"); ms < 20 {
		t.Errorf("requests of 10 ms in bursts of 300 take %v ms", ms)
	}
}

// The cost is that of the scenario capacity for the same fleet.
func TestTheCostIsThatOfCapacity(t *testing.T) {
	r := scenariotest.Run(t, New(), with("relays=6", "m=4", "p=5", "clients=500", "relays-per-service=6")...)
	c := scenariotest.Run(t, capacity.New(), "relays=6", "workers=40", "services=1", "relays-per-service=6", "m=4", "p=5", "requests=2000", "peak=1", "clients=500")
	found := 0
	for _, table := range c.Tables {
		for _, row := range table.Rows {
			for name, column := range map[string]int{"workers of a relay": 3, "descriptors of a relay": 3, "descriptors of a worker": 3, "memory of a relay": 3, "all of it": 1, "a crash is known to all": 1} {
				if row[0] != name {
					continue
				}
				found++
				ours := map[string]string{"workers of a relay": "workers that a relay connects to", "all of it": "gossip of a member"}[name]
				if ours == "" {
					ours = name
				}
				if got := value(t, r, ours); math.Abs(got-row[column].(float64)) > 1e-9 {
					t.Errorf("%s is %v, capacity has %v", name, got, row[column])
				}
			}
		}
	}
	if found != 6 {
		t.Errorf("%d values were compared", found)
	}
}

// A large fleet is simulated by a part of it, which must wait as long as the whole.
func TestAPartOfAFleetWaitsLikeTheWhole(t *testing.T) {
	q := question{
		workers: 800, services: 1, rate: 800 * 136, slots: 4, mean: 25 * time.Millisecond, p99: time.Second,
		strategy: affinity.Projection, index: affinity.IndexRank, seed: 1,
	}
	p99 := func(requests float64) float64 {
		q.requests = requests
		result, err := q.run(&option{settings: settings{80, 3, 3}, relays: 80, perService: 80}, policy.Ringway("ringway", selection.DefaultConfig()))
		if err != nil {
			t.Fatal(err)
		}
		return milliseconds(result.Percentile(99))
	}
	if part, whole := p99(200_000), p99(1_400_000); math.Abs(part/whole-1) > 0.05 {
		t.Errorf("p99 of a part is %v ms, of the whole fleet %v ms", part, whole)
	}
}
