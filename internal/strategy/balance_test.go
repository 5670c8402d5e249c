package strategy

import (
	"fmt"
	"math"
	"sync"
	"testing"
)

// arcs returns the share of the ring that leads to each node.
func arcs(s *Strategy) map[string]float64 {
	t := s.picker.(*slots).table.Load()
	shares := make(map[string]float64, len(t.owners))
	for i, owner := range t.owners {
		before := t.positions[(i+len(t.positions)-1)%len(t.positions)]
		shares[owner.Node] += float64(t.positions[i]-before) / (1 << 64) // around the end by overflow
	}
	return shares
}

func largest[K comparable, N float64 | int](shares map[K]N) (most N) {
	for _, share := range shares {
		most = max(most, share)
	}
	return most
}

// The largest share over the mean with one sample, as measured over many rings.
// Rivet's formula, 1 + ln(N)/V, promises 1.6 and 1.9 at V = 8; its own test reaches
// 2.0 only because it places the nodes evenly.
func TestVirtualNodesEvenOutTheSharesOfASingleSampleAsFarAsMeasured(t *testing.T) {
	const tolerance = 0.08
	for n, want := range map[int]map[int]float64{
		100:  {1: 5.1, 4: 2.8, 8: 2.12, 16: 1.73, 32: 1.48, 64: 1.34},
		1000: {1: 7.1, 4: 3.4, 8: 2.54, 16: 2.03, 32: 1.67, 64: 1.46},
	} {
		for v, ratio := range want {
			if raceDetector && n*v > 4000 {
				continue // no goroutines here; without the detector every case runs
			}
			rings := min(max(48_000/(n*v), 3), 40) // large ones differ little
			mean := 0.0
			for i := range rings {
				s := over(t, fmt.Sprintf("slots;samples=1;vnodes=%d", v), numbered(fmt.Sprint("ring", i, "-worker"), n)...)
				mean += largest(arcs(s)) * float64(n) / float64(rings)
			}
			t.Logf("N=%d V=%d: %.2f", n, v, mean)
			if math.Abs(mean-ratio) > tolerance*ratio {
				t.Errorf("N=%d V=%d: the largest share is %.2f times the mean, want %.2f", n, v, mean, ratio)
			}
		}
	}
}

// fill picks count times and adds each pick to the load.
func fill(t *testing.T, s *Strategy, count int) {
	t.Helper()
	for range count {
		e, err := s.Pick(Request{})
		if err != nil {
			t.Fatal(err)
		}
		gaugeOf(*e).load.Add(1)
	}
}

func loadsOf(list []Endpoint) map[string]int {
	loads := map[string]int{}
	for _, e := range list {
		loads[e.Node] = int(gaugeOf(e).load.Load())
	}
	return loads
}

func TestASingleSampleGivesEachEndpointItsShareOfTheRing(t *testing.T) {
	s, list := build(t, "slots;samples=1", seeded(1)), endpoints(numbered("w", 100)...)
	update(t, s, list)
	const n = 100_000
	fill(t, s, n)
	for node, share := range arcs(s) {
		got, want := float64(loadsOf(list)[node]), share*n
		if math.Abs(got-want) > 5*math.Sqrt(want)+1 {
			t.Errorf("%s got %v of %d, want %.0f", node, got, n, want)
		}
	}
	if most := float64(largest(loadsOf(list))) / (n / 100); most > 2.6 {
		t.Errorf("the most is %.2f times the mean", most)
	}
}

func TestTwoSamplesEvenOutTheLoad(t *testing.T) {
	for _, c := range []struct {
		text  string
		n     int
		limit float64
	}{{Slots, 100, 1.1}, {Slots, 500, 1.1}, {"slots;jitter=0", 100, 1.04}, {"slots;samples=4", 100, 1.06}} {
		s, list := build(t, c.text, seeded(1)), endpoints(numbered("w", c.n)...)
		update(t, s, list)
		fill(t, s, 100*c.n)
		most := float64(largest(loadsOf(list))) / 100
		t.Logf("%s, N=%d: %.3f", c.text, c.n, most)
		if most > c.limit {
			t.Errorf("%s, N=%d: the most is %.3f times the mean, want at most %v", c.text, c.n, most, c.limit)
		}
	}
}

// Two choices leave the fullest at most two above the mean where all are chosen
// alike. Few virtual nodes and the jitter, which is worth its price only when loads
// are old, each cost up to one more.
func TestAColdRangeFillsEvenly(t *testing.T) {
	for _, c := range []struct {
		text               string
		n, each, above, of int
	}{
		{"slots;vnodes=64;jitter=0", 100, 1, 2, 10},
		{"slots;vnodes=64;jitter=0", 100, 2, 2, 10},
		{"slots;vnodes=64;jitter=0", 1000, 1, 2, 1},
		{"slots;jitter=0", 100, 1, 2, 10},
		{"slots;jitter=0", 1000, 1, 2, 1},
		{Slots, 100, 1, 3, 10},
	} {
		for seed := range uint64(c.of) {
			s, list := build(t, c.text, seeded(seed)), endpoints(numbered("w", c.n)...)
			update(t, s, list)
			fill(t, s, c.n*c.each)
			if most := largest(loadsOf(list)); most > c.each+c.above {
				t.Errorf("%+v, seed %d: the most is %d at a mean of %d", c, seed, most, c.each)
			}
		}
	}
}

func TestAFullEndpointGetsNextToNothingUnlessLoadsAreNotRead(t *testing.T) {
	for text, atMost := range map[string]float64{Slots: 0.01, "slots;samples=4": 0.001, "slots;samples=1": 1} {
		s, list := build(t, text, seeded(1)), endpoints(numbered("w", 100)...)
		gaugeOf(list[3]).load.Store(50)
		update(t, s, list)
		count := map[string]int{}
		const n = 10_000
		for range n {
			count[pick(t, s, Request{})]++
		}
		share := float64(count["w3"]) / n
		if share > atMost || (atMost == 1 && math.Abs(share-arcs(s)["w3"]) > 0.004) {
			t.Errorf("%s: %.4f of the picks went to the endpoint with 50 slots taken, whose share of the ring is %.4f", text, share, arcs(s)["w3"])
		}
	}
}

// surge picks from many goroutines concurrently, as many relays do in a burst.
func surge(t *testing.T, s *Strategy, each int, after func(*Endpoint)) map[string]int {
	t.Helper()
	const relays = 32
	counts := make([]map[string]int, relays)
	var wg sync.WaitGroup
	for i := range relays {
		counts[i] = map[string]int{}
		wg.Go(func() {
			for range each {
				e, err := s.Pick(Request{})
				if err != nil {
					t.Error(err)
					return
				}
				after(e)
				counts[i][e.Node]++
			}
		})
	}
	wg.Wait()
	sum := map[string]int{}
	for _, count := range counts {
		for node, n := range count {
			sum[node] += n
		}
	}
	return sum
}

func TestASurgeDoesNotHerdOnWhatOldLoadsCallIdle(t *testing.T) {
	const each, n = 1000, 32 * 1000
	s, list := build(t, Slots), endpoints(numbered("w", 100)...)
	for i := range list {
		gaugeOf(list[i]).load.Store(40)
	}
	gaugeOf(list[5]).load.Store(0) // all read that it is idle, and none is notified that it is not any more
	update(t, s, list)
	count, share := surge(t, s, each, func(*Endpoint) {}), arcs(s)
	for node, got := range count {
		// It takes a sample to win, and there are two of them.
		if most := 2 * share[node] * n; float64(got) > most+5*math.Sqrt(most) {
			t.Errorf("%s got %d of %d, with %.4f of the ring", node, got, n, share[node])
		}
	}
	if got, least := float64(count["w5"]), 1.5*share["w5"]*n; got < least {
		t.Errorf("the idle one got %v, want more than %.0f: loads are read", got, least)
	}
}

func TestASurgeThatCountsItselfFillsEvenly(t *testing.T) {
	const each = 1000
	s, list := build(t, Slots), endpoints(numbered("w", 100)...)
	update(t, s, list)
	count := surge(t, s, each, func(e *Endpoint) { gaugeOf(*e).load.Add(1) })
	if most := float64(largest(count)) / (32 * each / 100); most > 1.1 || len(count) != 100 {
		t.Errorf("%d endpoints, the most is %.3f times the mean", len(count), most)
	}
}
