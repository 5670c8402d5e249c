package affinity_test

import (
	"slices"
	"testing"

	"github.com/ringway/ringway/affinity"
)

func rangeOf(t *testing.T, relays, workers, index int) affinity.Range {
	t.Helper()
	r, err := affinity.Shape{Relays: relays, Workers: workers, Minimums: affinity.DefaultMinimums}.Range(index)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestARangeWrapsTailThenHead(t *testing.T) {
	for _, c := range []struct {
		relays, workers, index int
		text                   string
		positions              []int
	}{
		{4, 8, 0, "[0..6) of 8", []int{0, 1, 2, 3, 4, 5}},
		{4, 8, 1, "[2..8) of 8", []int{2, 3, 4, 5, 6, 7}}, // ends exactly at the seam
		{4, 8, 3, "[6..4) of 8", []int{6, 7, 0, 1, 2, 3}},
		{3, 7, 1, "[0..7) of 7 (all)", []int{2, 3, 4, 5, 6, 0, 1}},
		{1, 1, 0, "[0..1) of 1 (all)", []int{0}},
		{8, 4, 7, "[0..3) of 4", []int{0, 1, 2}}, // 3.5 rounds up past the last worker
	} {
		r := rangeOf(t, c.relays, c.workers, c.index)
		if r.String() != c.text {
			t.Errorf("relay %d of %d, %d workers: %v, want %s", c.index, c.relays, c.workers, r, c.text)
		}
		if got := slices.Collect(r.All()); !slices.Equal(got, c.positions) {
			t.Errorf("%v yields %v, want %v", r, got, c.positions)
		}
		for pos := -1; pos <= c.workers; pos++ {
			if r.Contains(pos) != slices.Contains(c.positions, pos) {
				t.Errorf("%v contains %d is %v", r, pos, r.Contains(pos))
			}
		}
	}
	if got, want := rangeOf(t, 50, 100, 29).String(), "[58..64) of 100"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestDistanceCountsPlacesOutsideTheRange(t *testing.T) {
	for relays := 1; relays <= 12; relays++ {
		for workers := 1; workers <= 30; workers++ {
			for i := range relays {
				r := rangeOf(t, relays, workers, i)
				inside := slices.Collect(r.All())
				for pos := range workers {
					want := workers // the dumb reference: the nearest position inside
					for _, p := range inside {
						step := max(p-pos, pos-p)
						want = min(want, step, workers-step)
					}
					if got := r.Distance(pos); got != want {
						t.Fatalf("%v: the distance of %d is %d, want %d", r, pos, got, want)
					}
				}
				if r.Distance(-1) != -1 || r.Distance(workers) != -1 {
					t.Fatalf("%v: a position off the ring has a distance", r)
				}
			}
		}
	}
	if got := (affinity.Range{}).Distance(0); got != -1 {
		t.Errorf("the distance to an empty range is %d", got)
	}
}

func TestAllStopsWhenTheCallerDoes(t *testing.T) {
	n := 0
	for range rangeOf(t, 4, 8, 3).All() {
		if n++; n == 2 {
			break
		}
	}
	if n != 2 {
		t.Errorf("%d positions after a break at 2", n)
	}
}

func TestTheZeroRangeIsEmpty(t *testing.T) {
	var r affinity.Range
	if r.Len() != 0 || r.End() != 0 || r.Contains(0) || len(slices.Collect(r.All())) != 0 || r.String() != "[0..0) of 0" {
		t.Errorf("the zero range is %v", r)
	}
}
