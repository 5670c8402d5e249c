package surge

import (
	"math/rand/v2"
	"testing"

	"github.com/ringway/ringway/internal/strategy"
	"github.com/ringway/ringway/ring"
	"github.com/ringway/ringway/sims/internal/scenario/scenariotest"
)

// small is enough for what must hold.
var small = []string{"allocators=1000", "relays=10", "reports=15", "trials=10"}

func with(set ...string) []string { return append(append([]string{}, small...), set...) }

func TestEachPromiseCanFail(t *testing.T) {
	if raceDetector {
		t.Skip("runs without the race detector")
	}
	scenariotest.EachCanFail(t, New(), map[string]scenariotest.Break{
		herd:     {Set: with("samples=8")},
		fullest:  {Set: with("samples=8")},
		jitters:  {Set: with("jitter=0")},
		coldPool: {Set: with("samples=1")},
		avoids:   {Set: with("samples=1")},
	})
}

func TestItHoldsWithOtherSettings(t *testing.T) {
	if raceDetector {
		t.Skip("runs without the race detector")
	}
	for _, set := range []string{"relays=1", "vnodes=64", "workers=60", "stay=20"} {
		scenariotest.Holds(t, New(), with(set)...)
	}
}

func TestItRepeats(t *testing.T) {
	scenariotest.Repeats(t, New(), with("allocators=100", "workers=20", "trials=2")...)
}

func fleetOf(t *testing.T, s setup) *fleet {
	t.Helper()
	f, err := newFleet(s, func(stream string) *rand.Rand { return rand.New(rand.NewPCG(7, ring.Hash(stream, 0))) })
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func interval(t *testing.T, f *fleet) {
	t.Helper()
	if err := f.interval(); err != nil {
		t.Fatal(err)
	}
}

func TestARelayReadsTheReportAndWhatItSentSince(t *testing.T) {
	for _, blind := range []bool{false, true} {
		f := fleetOf(t, setup{workers: 10, relays: 2, allocators: 100, blind: blind, full: 7, spec: strategy.Default(strategy.Slots)})
		interval(t, f)
		reported, own := 0, make([]int, 10)
		for _, s := range f.relays[0].sessions {
			own[s.worker]++
		}
		for i, c := range f.relays[0].choices {
			if i == 0 {
				reported = 7
			}
			want := reported + own[i]
			if blind {
				want = reported
			}
			if got, _ := c.Signals.Load(); got != want {
				t.Errorf("blind %v: the relay reads a load of %d for worker %d, want %d", blind, got, i, want)
			}
			reported = 0
		}
	}
}

func TestSlotsAreHeldForAsLongAsConfigured(t *testing.T) {
	f := fleetOf(t, setup{workers: 10, relays: 5, allocators: 500, stay: 4, spec: strategy.Default(strategy.Slots)})
	held := 0.0
	for i := range 80 {
		interval(t, f)
		if i >= 30 {
			held += mean(f.taken) / 50
		}
	}
	// 50 come with each report, a quarter of all goes.
	if held < 140 || held > 160 {
		t.Errorf("%.1f slots are taken on average, want 150", held)
	}
}

func TestCountingWhatOneSentEvensOutTheFirstSurge(t *testing.T) {
	above := func(blind bool) (sum float64) {
		f := fleetOf(t, setup{workers: 100, relays: 1, allocators: 2000, blind: blind, spec: strategy.Default(strategy.Slots)})
		interval(t, f)
		for _, n := range f.sent {
			sum += (float64(n) - 20) * (float64(n) - 20) / 100
		}
		return sum
	}
	if counted, blind := above(false), above(true); counted > blind/3 {
		t.Errorf("variance of %.1f slots with own ones counted, %.1f without", counted, blind)
	}
}
