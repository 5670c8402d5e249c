package strategy

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringway/ringway/ring"
	"github.com/ringway/ringway/selection"
)

// script is a random source that returns the given numbers, then one in the
// middle (drawing without bias would wait without end at zero).
type script struct{ numbers []uint64 }

func (s *script) Uint64() uint64 {
	if len(s.numbers) == 0 {
		return 1 << 63
	}
	n := s.numbers[0]
	s.numbers = s.numbers[1:]
	return n
}

// at makes the samples start at these positions.
func at(positions ...uint64) func(*Config) {
	return func(c *Config) { c.Rand = &script{positions} }
}

func gaugeOf(e Endpoint) *gauge { return e.Signals.(*gauge) }

func reads(list []Endpoint) (loads, seens int64) {
	for _, e := range list {
		loads, seens = loads+gaugeOf(e).loads.Load(), seens+gaugeOf(e).seens.Load()
	}
	return loads, seens
}

func numbered(prefix string, n int) []string {
	nodes := make([]string, n)
	for i := range nodes {
		nodes[i] = fmt.Sprint(prefix, i)
	}
	return nodes
}

// atNoon is a request for slots; what was seen at 0 is stale.
var atNoon = Request{Now: selection.Instant(12 * time.Hour)}

func TestThePlacesOnTheRingArePinned(t *testing.T) {
	s := over(t, "slots;vnodes=3", "rivet-envoy-test-key")
	if got, want := s.picker.(*slots).table.Load().positions, []uint64{4132758085140587655, 6235129042166707504, 17729014694824956575}; !slices.Equal(got, want) {
		t.Errorf("positions %d, want %d", got, want)
	}
}

func TestASampleLeadsToTheEndpointThatTheRingWalkReachesFirst(t *testing.T) {
	nodes := numbered("w", 20)
	// The reference compares all positions by their distance clockwise.
	nearest := func(pivot uint64) (owner string) {
		least := uint64(math.MaxUint64)
		for _, node := range nodes {
			for seed := range uint64(8) {
				if distance := ring.Hash(node, seed) - pivot; distance <= least {
					least, owner = distance, node
				}
			}
		}
		return owner
	}
	for i := range uint64(500) {
		pivot := ring.Hash("pivot", i)
		s := build(t, "slots;samples=1", at(pivot))
		update(t, s, endpoints(nodes...))
		if got, want := pick(t, s, Request{}), nearest(pivot); got != want {
			t.Fatalf("from %d: %s, want %s", pivot, got, want)
		}
	}
}

// fiftyStale returns 51 endpoints with one place each and a position from which
// a walk reaches the 50 stale ones first.
func fiftyStale() (list []Endpoint, from uint64) {
	list = endpoints(numbered("w", 51)...)
	gaugeOf(list[0]).seen = atNoon.Now
	return list, ring.Hash("w0", 0) + 1
}

func TestTheStaleBudgetIsCountedExactly(t *testing.T) {
	for _, c := range []struct {
		samples, maxScan int
		found            bool
		seens            int64
	}{
		{1, 8, false, 8},
		{1, 64, true, 51},
		{1, 50, false, 50},
		{1, 51, true, 51},
		{2, 8, false, 8},    // one budget for both samples
		{2, 64, true, 65},   // the second has 14 left, and finds nothing
		{2, 100, true, 101}, // the same
		{2, 101, true, 102}, // and finds the same
		{8, 256, true, 261}, // 5 samples pass 50 each, the 6th ends
	} {
		list, from := fiftyStale()
		w := watch(t)
		s := build(t, fmt.Sprintf("slots;vnodes=1;samples=%d;maxscan=%d", c.samples, c.maxScan), at(slices.Repeat([]uint64{from}, 8)...), w.use)
		update(t, s, list)
		e, err := s.Pick(atNoon)
		if (err == nil) != c.found || (c.found && e.Node != "w0") {
			t.Errorf("%+v: %v, %v", c, e, err)
		}
		if _, seens := reads(list); seens != c.seens {
			t.Errorf("%+v: looked at %d", c, seens)
		}
		if got := w.total(t, "ringway_selection_scan_depth"); got != float64(c.seens) {
			t.Errorf("%+v: scan depth %v", c, got)
		}
	}
}

func TestOneSampleWithoutAnEndpointDoesNotFailThePick(t *testing.T) {
	list, from := fiftyStale()
	w := watch(t)
	s := build(t, "slots;vnodes=1;maxscan=10", at(from-1, from), w.use)
	update(t, s, list)
	if got := pick(t, s, atNoon); got != "w0" {
		t.Errorf("picked %s", got)
	}
	if got := w.value(t, "ringway_selection_scan_budget_exhausted_total"); got != 1 {
		t.Errorf("budget exhausted %v times", got)
	}
}

func TestOneSampleReadsNoLoadAndChecksOneEndpoint(t *testing.T) {
	list := endpoints(numbered("w", 10)...)
	s := build(t, "slots;samples=1")
	update(t, s, list)
	const n = 100
	for range n {
		pick(t, s, Request{})
	}
	if loads, seens := reads(list); loads != 0 || seens != n {
		t.Errorf("%d picks read %d loads and %d times when an endpoint was seen", n, loads, seens)
	}
}

func TestTwoSamplesOfOneEndpointReadItsLoadOnce(t *testing.T) {
	list, w := endpoints(numbered("w", 10)...), watch(t)
	s := build(t, Slots, at(7, 7), w.use)
	update(t, s, list)
	pick(t, s, Request{})
	if loads, _ := reads(list); loads != 1 {
		t.Errorf("%d loads read", loads)
	}
	if got := w.value(t, "ringway_selection_sample_dedupes_total"); got != 1 {
		t.Errorf("%v counted", got)
	}
	if got := w.total(t, "ringway_selection_samples_effective"); got != 1 {
		t.Errorf("%v effective samples", got)
	}
}

func TestAScanGoesOnAtTheBeginningOfTheRing(t *testing.T) {
	w := watch(t)
	s := build(t, "slots;samples=1", at(math.MaxUint64, 0), w.use)
	update(t, s, endpoints(numbered("w", 10)...))
	if end, begin := pick(t, s, Request{}), pick(t, s, Request{}); end != begin {
		t.Errorf("the end of the ring leads to %s, its beginning to %s", end, begin)
	}
	if got := w.value(t, "ringway_selection_wraps_total"); got != 1 {
		t.Errorf("%v wraps counted", got)
	}
}

func TestAnEndpointIsFreshForAsLongAsConfigured(t *testing.T) {
	for text, fresh := range map[string]time.Duration{Slots: 10 * time.Second, "slots;fresh=1s": time.Second, "slots;samples=1;fresh=1m": time.Minute} {
		list := endpoints("w")
		s := build(t, text)
		update(t, s, list)
		g := gaugeOf(list[0])
		for age, stale := range map[time.Duration]bool{0: false, fresh: false, fresh + 1: true, -time.Hour: false} {
			g.seen = atNoon.Now - selection.Instant(age)
			if _, err := s.Pick(atNoon); (err != nil) != stale {
				t.Errorf("%s: seen %v ago: %v", text, age, err)
			}
		}
		g.neverSeen, g.seen = true, atNoon.Now
		wantError(t, s, atNoon, ErrAllStale)
		list[0].Signals = nil
		update(t, s, list)
		wantError(t, s, atNoon, ErrAllStale)
	}
}

// unknownLoad has a load that was never reported.
type unknownLoad struct{ gauge }

func (*unknownLoad) Load() (int, bool) { return 1000, false }

func TestAnUnknownLoadCountsAsNone(t *testing.T) {
	s, list := build(t, "slots;jitter=0"), endpoints("known", "unknown")
	gaugeOf(list[0]).load.Store(1)
	list[1].Signals = new(unknownLoad)
	update(t, s, list)
	eachPair(t, s, 100, func(d Decision) {
		if d.Winner.Node != "unknown" {
			t.Fatalf("%+v", d.Candidates)
		}
	})
}

// eachPair shows n decisions in which two endpoints were compared.
func eachPair(t *testing.T, s *Strategy, n int, show func(Decision)) {
	t.Helper()
	for range 100 * n {
		if d := s.Explain(Request{}); d.Err != nil {
			t.Fatal(d.Err)
		} else if len(d.Candidates) == 2 && d.Candidates[0].Note == noteUsable {
			if show(d); n == 1 {
				return
			}
			n--
		}
	}
	t.Fatal("too few samples of two endpoints")
}

func TestTheLowerLoadWinsAndJitterBlursOnlySmallDifferences(t *testing.T) {
	for _, c := range []struct {
		jitter, difference int
		sometimes          bool
	}{{0, 1, false}, {1, 1, true}, {1, 2, false}, {4, 3, true}, {4, 4, true}, {4, 5, false}, {64, 60, true}} {
		list := endpoints("more", "less")
		gaugeOf(list[0]).load.Store(int64(10 + c.difference))
		gaugeOf(list[1]).load.Store(10)
		s := build(t, fmt.Sprintf("slots;jitter=%d", c.jitter), seeded(3))
		update(t, s, list)
		wrong := 0
		eachPair(t, s, 3000, func(d Decision) {
			if d.Winner.Node == "more" {
				wrong++
			}
		})
		if (wrong > 0) != c.sometimes || wrong > 1500 {
			t.Errorf("%+v: the higher load won %d of 3000", c, wrong)
		}
	}
}

func TestChanceDecidesBetweenEqualLoads(t *testing.T) {
	for _, nodes := range [][]string{{"a", "b"}, {"b", "a"}} {
		won := map[string]int{}
		for seed := range uint64(128) {
			s := build(t, "slots;jitter=0", seeded(seed))
			update(t, s, endpoints(nodes...))
			eachPair(t, s, 1, func(d Decision) {
				if won[d.Winner.Node]++; d.Winner.Node == d.Candidates[0].Node {
					won["first sampled"]++
				}
			})
		}
		for _, what := range []string{"a", "b", "first sampled"} {
			if won[what] < 32 || won[what] > 96 {
				t.Errorf("of 128 seeds: %v", won)
				break
			}
		}
	}
	w := watch(t)
	s := build(t, "slots;jitter=0", at(ring.Hash("a", 0), ring.Hash("b", 0)), w.use)
	update(t, s, endpoints("a", "b"))
	pick(t, s, Request{})
	if got := w.value(t, "ringway_selection_ties_total"); got != 1 {
		t.Errorf("%v ties counted", got)
	}
}

func TestOnlyTheHighestVersionIsPicked(t *testing.T) {
	for _, samples := range []int{1, 2, 8} {
		s, list := build(t, fmt.Sprintf("slots;samples=%d", samples)), endpoints("old", "new", "new2", "older", "none")
		for i, v := range []string{"1.9", "1.10", "v1.10", "1.2", ""} {
			list[i].Version = v
			gaugeOf(list[i]).seen = atNoon.Now
		}
		update(t, s, list)
		count := map[string]int{}
		for range 300 {
			count[pick(t, s, atNoon)]++
		}
		if len(count) != 2 || count["new"] == 0 || count["new2"] == 0 {
			t.Errorf("%d samples: %v", samples, count)
		}
		wantError(t, s, Request{Now: atNoon.Now, Excluded: [][]string{{"new.1", "new2.1"}}}, ErrAllExcluded)
		gaugeOf(list[1]).seen, gaugeOf(list[2]).seen = 0, 0
		wantError(t, s, atNoon, ErrAllStale) // the older ones are no fallback
	}
}

func TestTheSameSeedMakesTheSameChoices(t *testing.T) {
	for _, text := range []string{Slots, "slots;samples=1", Random, Stable, StableSHA256} {
		choices := func(seed uint64) (nodes []string) {
			s := build(t, text, seeded(seed))
			update(t, s, endpoints(numbered("w", 50)...))
			for range 30 {
				nodes = append(nodes, pick(t, s, Request{}))
			}
			return nodes
		}
		if a, b, c := choices(1), choices(1), choices(2); !slices.Equal(a, b) || slices.Equal(a, c) {
			t.Errorf("%s: seed 1 gave\n%v\n%v\nand seed 2\n%v", text, a, b, c)
		}
	}
}

func TestSamplesAreHowManyEndpointsAreCompared(t *testing.T) {
	for samples := 1; samples <= maxSamples; samples++ {
		list, w := endpoints(numbered("w", 200)...), watch(t)
		s := build(t, fmt.Sprintf("slots;samples=%d", samples), seeded(1), w.use)
		update(t, s, list)
		const n = 1000
		for range n {
			pick(t, s, Request{})
		}
		loads, seens := reads(list)
		dedupes := w.value(t, "ringway_selection_sample_dedupes_total")
		if seens != int64(n*samples) || (samples > 1 && float64(loads)+dedupes != float64(n*samples)) || dedupes > 0.1*n*float64(samples) {
			t.Errorf("%d samples: %d picks looked at %d endpoints, read %d loads, %v twice", samples, n, seens, loads, dedupes)
		}
	}
}

func TestStaleEndpointsAreReportedWhileThePickGoesOn(t *testing.T) {
	list, from := fiftyStale()
	var met []string
	s := build(t, "slots;vnodes=1;samples=1;maxscan=64", at(from, from), func(c *Config) {
		c.Stale = func(e *Endpoint) { met = append(met, e.ID) }
	})
	update(t, s, list)
	if d := s.Explain(atNoon); d.Err != nil || len(d.Candidates) != 51 || d.Candidates[0].Note != noteStale || len(met) != 0 {
		t.Errorf("explained as %+v, having handed on %v", d, met)
	}
	pick(t, s, atNoon)
	slices.Sort(met)
	if len(met) != 50 || len(slices.Compact(met)) != 50 || slices.Contains(met, "w0.1") {
		t.Errorf("handed on %v", met)
	}
}

// Picks only report stale endpoints. Their owner checks each again, as advertise.Catalogue does, and
// removes those that are still stale.
func TestTheStaleEndpointsThatPicksFindAreThoseToCheckAndRemove(t *testing.T) {
	list, from := fiftyStale()
	found := map[string]bool{}
	s := build(t, "slots;vnodes=1;maxscan=100", at(from, from), func(c *Config) {
		c.Stale = func(e *Endpoint) { found[e.ID] = true }
	})
	update(t, s, list)
	pick(t, s, atNoon)
	if len(found) != 50 {
		t.Errorf("picks found %d stale endpoints, want 50", len(found))
	}
	gaugeOf(list[7]).seen = atNoon.Now // it shows itself before it is checked
	list = slices.DeleteFunc(list, func(e Endpoint) bool { return found[e.ID] && gaugeOf(e).seen != atNoon.Now })
	update(t, s, list)
	if len(list) != 2 || list[0].Node != "w0" || list[1].Node != "w7" {
		t.Errorf("%d endpoints are left: %v", len(list), list)
	}
}

func TestAnExhaustedBudgetIsLoggedRarelyWithServiceVersionAndCount(t *testing.T) {
	var text bytes.Buffer
	list := endpoints(numbered("w", 30)...)
	for i := range list {
		list[i].Version = "1.4"
	}
	w := watch(t)
	s := build(t, "slots;maxscan=7", w.use, func(c *Config) {
		c.Service, c.Logger = "billing", slog.New(slog.NewTextHandler(&text, nil))
	})
	update(t, s, list)
	r := atNoon
	for range 25 { // a second apart: at 0, 10 and 20
		_, err := s.Pick(r)
		if err == nil || !strings.Contains(err.Error(), "maxscan") {
			t.Fatalf("error %v", err)
		}
		s.Explain(r)
		r.Now += selection.Instant(time.Second)
	}
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	if len(lines) != 3 {
		t.Errorf("%d lines:\n%s", len(lines), text.String())
	}
	for _, want := range []string{"level=WARN", "service=billing", "version=1.4", "stale=7", "maxscan=7"} {
		if !strings.Contains(lines[0], want) {
			t.Errorf("%q lacks %s", lines[0], want)
		}
	}
	if got := w.value(t, "ringway_selection_scan_budget_exhausted_total"); got != 25 {
		t.Errorf("counted %v", got)
	}
	if got := w.value(t, "ringway_selection_stale_total"); got != 25*7 {
		t.Errorf("counted %v stale", got)
	}
}

func TestARangeSmallerThanTheBudgetIsNotLoggedAsExhaustion(t *testing.T) {
	w := watch(t)
	s := build(t, "slots;vnodes=1;samples=1", w.use)
	update(t, s, endpoints("a", "b"))
	wantError(t, s, atNoon, ErrAllStale)
	if got := w.value(t, "ringway_selection_scan_budget_exhausted_total"); got != 0 {
		t.Errorf("counted %v", got)
	}
}

func TestWhatWasRemovedIsNeverPickedAfterTheUpdate(t *testing.T) {
	for _, text := range []string{Slots, Stable, StableSHA256, Random, "ordered;preferred=x", "manual;preferred=x,w1"} {
		s := build(t, text)
		both, one := endpoints("w0", "w1", "w2", "x"), endpoints("w0", "w1", "w2")
		update(t, s, both)
		var pickers sync.WaitGroup
		stop := make(chan struct{})
		for range 3 {
			pickers.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						if _, err := s.Pick(Request{Key: "k"}); err != nil {
							t.Error(err)
							return
						}
					}
				}
			})
		}
		for range 200 {
			update(t, s, one)
			for i := range 5 {
				if got := pick(t, s, Request{Key: fmt.Sprint(i)}); got == "x" {
					t.Fatalf("%s: picked what the last update removed", text)
				}
			}
			update(t, s, both)
		}
		close(stop)
		pickers.Wait()
	}
}
