package statuspage

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/ringway/ringway/internal/api"
)

func ringOf(n int, change func(i int, w *RingWorker)) Ring {
	r := Ring{Minimum: 3}
	for i := range n {
		w := RingWorker{ID: fmt.Sprintf("w%d", i), State: Active, Relays: 3}
		change(i, &w)
		r.Workers = append(r.Workers, w)
	}
	return r
}

func same(int, *RingWorker) {}

func TestCoverageAndStateShowOnEveryMark(t *testing.T) {
	for _, c := range []struct {
		worker RingWorker
		want   string
	}{
		{RingWorker{State: Active, Relays: 2}, "mark c-below s-active"},
		{RingWorker{State: Active, Relays: 3}, "mark c-at s-active"},
		{RingWorker{State: Active, Relays: 4}, "mark c-above s-active"},
		{RingWorker{State: Evicted, Relays: 3}, "mark c-at s-evicted"},
		{RingWorker{State: HalfOpen, Relays: 3}, "mark c-at s-half-open"},
		{RingWorker{State: Unreachable, Relays: 2}, "mark c-below s-unreachable"},
		{RingWorker{State: Draining}, "mark c-none s-draining"}, // it is to have no relay
		{RingWorker{State: Absent, Relays: 3}, "mark c-none s-absent"},
	} {
		d := Ring{Minimum: 3, Workers: []RingWorker{c.worker}}.draw()
		if len(d.Marks) != 1 || d.Marks[0].Class != c.want || d.Marks[0].Shape != shapes[c.worker.State] {
			t.Errorf("%v: %+v, want %q", c.worker, d.Marks, c.want)
		}
	}
}

func TestEveryStateHasAShape(t *testing.T) {
	filled := map[string]PeerState{}
	for _, s := range []PeerState{Active, HalfOpen, Evicted, Draining, Unreachable, Connecting, Candidate} {
		if shapes[s] == "" {
			t.Errorf("%s has no shape", s)
		}
		if other := filled[shapes[s]]; other != "" {
			t.Errorf("%s looks like %s", s, other)
		}
		filled[shapes[s]] = s
	}
	for _, s := range []PeerState{Absent, Backup} { // circles that are hollow
		if shapes[s] != shapes[Active] {
			t.Errorf("%s: %q", s, shapes[s])
		}
	}
}

// However many workers there are, the drawing is bounded, and no fault
// gets lost.
func TestThousandsOfWorkersAreDrawnInSectorsThatShowTheWorst(t *testing.T) {
	const n = 10_000
	r := ringOf(n, func(i int, w *RingWorker) {
		switch i {
		case 42:
			w.State = Evicted
		case 43:
			w.State = Draining
		case 5000:
			w.Relays = 2
		case 9999:
			w.Relays = 4
		}
	})
	d := r.draw()
	if len(d.Sectors) != sectors || len(d.Marks) != 1 || len(d.Labels) != 0 {
		t.Fatalf("%d sectors, %d marks, %d labels", len(d.Sectors), len(d.Marks), len(d.Labels))
	}
	if m := d.Marks[0]; m.Class != "mark s-evicted" || m.Title != "workers 0 to 82 of 10,000: 0 to 3 relays each, 2 not active" && !strings.Contains(m.Title, "2 not active") {
		t.Errorf("%+v", m)
	}
	count := map[string]int{}
	for _, s := range d.Sectors {
		count[s.Class]++
	}
	if diff := cmp.Diff(map[string]int{"sector c-below": 1, "sector c-at": sectors - 1}, count); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !strings.Contains(d.Alt, "10,000 workers") || !strings.Contains(d.Alt, "1 evicted") || !strings.Contains(d.Alt, "2 to 4") {
		t.Errorf("%q", d.Alt)
	}
	at := func(n int) (marks, sectors, labels int) {
		d := ringOf(n, same).draw()
		return len(d.Marks), len(d.Sectors), len(d.Labels)
	}
	for n, want := range map[int][3]int{0: {}, 1: {1, 0, 1}, 32: {32, 0, 32}, 33: {33, 0, 0}, 120: {120, 0, 0}, 121: {0, 120, 0}} {
		if m, s, l := at(n); [3]int{m, s, l} != want {
			t.Errorf("%d workers: %d marks, %d sectors, %d labels, want %v", n, m, s, l, want)
		}
	}
}

// Every worker is in exactly one sector.
func TestSectorsShareOutTheRing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(mostMarked+1, 5000).Draw(t, "n")
		bad := rapid.IntRange(0, n-1).Draw(t, "bad")
		d := ringOf(n, func(i int, w *RingWorker) {
			if i == bad {
				w.Relays = 0
			}
		}).draw()
		below := 0
		for _, s := range d.Sectors {
			if strings.HasSuffix(s.Class, "below") {
				below++
			}
		}
		if len(d.Sectors) != sectors || below != 1 {
			t.Fatalf("%d sectors, %d of them with the one worker", len(d.Sectors), below)
		}
	})
}

// The ends of an arc lie half a place outside the first and the last worker.
func TestAnArcSpansItsRuns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 400).Draw(t, "n")
		start := rapid.IntRange(0, n-1).Draw(t, "start")
		length := rapid.IntRange(1, n-1).Draw(t, "len")
		r := ringOf(n, same)
		r.Arcs = []Arc{{Relay: "r1", Self: true, Runs: []Run{{start, length}}}}
		d := r.draw()
		var x1, y1, rx, ry, x2, y2 float64
		var large int
		if _, err := fmt.Sscanf(strings.NewReplacer("M", "", "A", " ").Replace(d.Arcs[0].Path), "%g %g %g %g 0 %d 1 %g %g", &x1, &y1, &rx, &ry, &large, &x2, &y2); err != nil {
			t.Fatal(d.Arcs[0].Path, err)
		}
		turn := func(x, y float64) float64 { return math.Mod(math.Atan2(x, -y)/(2*math.Pi)+1, 1) }
		gap := 0.15
		if n > mostMarked {
			gap = 0
		}
		near := func(what string, got, want float64) {
			distance := math.Abs(got - math.Mod(want/float64(n)+1, 1))
			if distance = min(distance, 1-distance); distance > 0.001 {
				t.Errorf("%s at %v of a turn, want %v", what, got, want/float64(n))
			}
		}
		near("begin", turn(x1, y1), float64(start)-0.5+gap)
		near("end", turn(x2, y2), float64(start+length)-0.5-gap)
		if span := (float64(length) - 2*gap) / float64(n); math.Abs(span-0.5) > 0.001 && (large == 1) != (span > 0.5) {
			t.Errorf("a span of %v is drawn the other way around", span)
		}
		if rx != ry || rx <= d.Radius {
			t.Errorf("own arc at %v, workers at %v", rx, d.Radius)
		}
	})
}

func TestAnArcAroundTheWholeRingIsDrawn(t *testing.T) {
	r := ringOf(12, same)
	r.Arcs = []Arc{{Relay: "r1", Self: true, Runs: []Run{{0, 12}}}, {Relay: "r2", Absent: true, Runs: []Run{{5, 12}}}}
	d := r.draw()
	for _, a := range d.Arcs {
		if !strings.HasSuffix(a.Path, "Z") || strings.Count(a.Path, "A") != 2 {
			t.Errorf("%s: %s", a.Title, a.Path)
		}
	}
	if d.Arcs[1].Class != "arc absent" || !strings.Contains(d.Arcs[1].Title, "vanished") {
		t.Errorf("%+v", d.Arcs[1])
	}
}

func TestArcsOfOthersAreLeftOutWhereThereIsNoRoom(t *testing.T) {
	for others, want := range map[int]int{0: 1, mostInner: 1 + mostInner, mostInner + 1: 1} {
		r := ringOf(20, same)
		r.Arcs = []Arc{{Relay: "me", Self: true, Runs: []Run{{0, 3}}}}
		for i := range others {
			r.Arcs = append(r.Arcs, Arc{Relay: fmt.Sprint(i), Runs: []Run{{i, 3}}})
		}
		if got := len(r.draw().Arcs); got != want {
			t.Errorf("%d others: %d arcs, want %d", others, got, want)
		}
	}
}

func TestManyRelaysToForwardToAreCutToThoseThatAreConnected(t *testing.T) {
	var peers []Peer
	for i := range 500 {
		peers = append(peers, Peer{Peer: api.Peer{Node: fmt.Sprint(i)}, State: Candidate})
	}
	peers[3].State, peers[400].State = Active, Backup
	d := drawForwarding(peers, "gate")
	if len(d.Marks) != 2 || len(d.Spokes) != 2 || d.Alt != "This gate forwards to 1 of 500 relays; 1 more are in reserve." {
		t.Errorf("%d marks, %d spokes, %q", len(d.Marks), len(d.Spokes), d.Alt)
	}
}

func TestNumbersAreReadable(t *testing.T) {
	for got, want := range map[string]string{
		number(0): "0", number(999): "999", number(1000): "1,000", number(1234567): "1,234,567", number(-1000): "-1,000",
		span(3, 3): "3", span(3, 4): "3 to 4", milliseconds(0): "–", milliseconds(1.234_567): "1.23", milliseconds(2_345.678_901): "2,346",
		percent(0.0546): "5.5", score(math.Inf(1)): "–", score(12.345): "12.35", score(3e7): "3.0e+07",
		age(-5): "< 1 min", age(59e9): "< 1 min", age(60e9): "1 min", age(3600e9): "1 h", age(47 * 3600e9): "47 h", age(72 * 3600e9): "3 d",
		shorten("short"): "short", shorten("a-long-name-of-worker-17"): "…-of-worker-17",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
