package statuspage

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	// mostLabelled and mostMarked: with more workers, the ring has no space for their
	// names, or for a mark for each.
	mostLabelled = 32
	mostMarked   = 120
	// sectors is how many sectors replace the marks in that case.
	sectors = 120
	// mostInner is how many arcs of other relays fit inside the ring.
	mostInner = 9
	// longestLabel is in characters.
	longestLabel = 14
)

// drawing is a ring with its geometry, ready for the template.
type drawing struct {
	Alt     string
	Radius  float64
	Arcs    []drawnArc
	Spokes  []spoke
	Marks   []mark
	Sectors []sector
	Labels  []label
	// Middle is the number in the middle, Unit its unit.
	Middle, Unit string
}

type drawnArc struct {
	Class, Path, Title string
}

// mark is one worker, or one relay that is forwarded to.
type mark struct {
	ID, Class, Title, Shape string
	X, Y, Size              float64
}

// sector is several workers.
type sector struct {
	Class, Path, Title string
}

type label struct {
	X, Y         float64
	Anchor, Text string
	Class        string
}

// spoke is a connection to a relay that is forwarded to.
type spoke struct {
	Class string
	X, Y  float64
}

// coverage compares the relays of a worker with the minimum.
func (r Ring) coverage(w RingWorker) string {
	switch {
	case w.State == Draining || w.State == Absent:
		return "none" // it should have no relays
	case w.Relays < r.Minimum:
		return "below"
	case w.Relays == r.Minimum:
		return "at"
	}
	return "above"
}

// Tally counts the workers by coverage and by state.
func (r Ring) Tally() Tally {
	t := Tally{States: map[PeerState]int{}}
	first := true
	for _, w := range r.Workers {
		t.States[w.State]++
		switch r.coverage(w) {
		case "none":
			continue
		case "below":
			t.Below++
		case "at":
			t.At++
		case "above":
			t.Above++
		}
		if w.Mine {
			t.Mine++
		}
		if first {
			t.Min, t.Max, first = w.Relays, w.Relays, false
		}
		t.Min, t.Max = min(t.Min, w.Relays), max(t.Max, w.Relays)
	}
	return t
}

// Tally has the numbers of workers by coverage and by state.
type Tally struct {
	Below, At, Above int
	// Mine is how many are connected to this relay.
	Mine int
	// Min and Max are relays per worker.
	Min, Max int
	States   map[PeerState]int
}

// Troubles lists the states that need attention with their numbers, for example "2
// evicted".
func (t Tally) Troubles() (out []string) {
	for _, s := range []PeerState{Unreachable, Evicted, HalfOpen, Connecting, Absent, Draining} {
		if n := t.States[s]; n > 0 {
			out = append(out, fmt.Sprintf("%s %s", number(n), s))
		}
	}
	return out
}

// draw lays out a ring like docs/projection.svg: workers on the circle, the arc of this
// relay outside, those of other relays inside.
func (r Ring) draw() drawing {
	n := len(r.Workers)
	t := r.Tally()
	d := drawing{Radius: 150, Middle: number(n), Unit: plural(n, "worker")}
	d.Alt = fmt.Sprintf("%s %s in ring order. Relays per worker: %s, at least %d wanted. This relay connects to %s.",
		number(n), d.Unit, span(t.Min, t.Max), r.Minimum, number(t.Mine))
	if troubles := t.Troubles(); len(troubles) > 0 {
		d.Alt += " " + strings.Join(troubles, ", ") + "."
	}
	if n == 0 {
		return d
	}
	labelled := n <= mostLabelled
	if labelled {
		d.Radius = 132
	}
	d.arcs(r)
	switch {
	case n > mostMarked:
		d.sectors(r)
	default:
		d.marks(r, labelled)
	}
	return d
}

func (d *drawing) arcs(r Ring) {
	turn := func(position float64) float64 { return position / float64(len(r.Workers)) }
	gap := 0.15
	if len(r.Workers) > mostMarked {
		gap = 0
	}
	inner := 0
	others := len(r.Arcs)
	for _, a := range r.Arcs {
		if a.Self {
			others--
		}
	}
	for _, a := range r.Arcs {
		radius, class := d.Radius+19, "arc self"
		if !a.Self {
			if others > mostInner {
				continue
			}
			radius, class = d.Radius-22-float64(inner)*7, "arc"
			inner++
		}
		if a.Absent {
			class += " absent"
		}
		for _, run := range a.Runs {
			from, to := float64(run.Start)-0.5+gap, float64(run.Start+run.Len)-0.5-gap
			if run.Len >= len(r.Workers) {
				from, to = 0, float64(len(r.Workers))
			}
			d.Arcs = append(d.Arcs, drawnArc{Class: class, Path: arcPath(radius, turn(from), turn(to)), Title: a.title(run, len(r.Workers))})
		}
	}
}

func (a Arc) title(run Run, ring int) string {
	who := a.Relay
	if a.Self {
		who += " (this relay)"
	}
	if a.Absent {
		who += " (vanished)"
	}
	return fmt.Sprintf("%s: %s of %s workers, from position %s", who, number(run.Len), number(ring), number(run.Start))
}

func (d *drawing) marks(r Ring, labelled bool) {
	size := 3.2
	switch n := len(r.Workers); {
	case labelled:
		size = 7.5
	case n <= 72:
		size = 4.5
	}
	for i, w := range r.Workers {
		turn := float64(i) / float64(len(r.Workers))
		x, y := point(d.Radius, turn)
		d.Marks = append(d.Marks, mark{
			ID: w.ID, Class: "mark c-" + r.coverage(w) + " s-" + classOf(w.State), Shape: shapes[w.State], X: x, Y: y, Size: size,
			Title: r.title(w),
		})
		if labelled {
			x, y := point(d.Radius+32, turn)
			l := label{X: x, Y: y, Anchor: anchor(turn), Text: shorten(w.ID)}
			if !w.Mine {
				l.Class = "faint"
			}
			d.Labels = append(d.Labels, l)
		}
	}
}

func (r Ring) title(w RingWorker) string {
	text := fmt.Sprintf("%s: %s, %d %s", w.ID, w.State, w.Relays, plural(w.Relays, "relay"))
	if r.coverage(w) == "below" {
		text += fmt.Sprintf(" of at least %d", r.Minimum)
	}
	if w.Mine {
		text += ", connected to this one"
	}
	return text
}

// sectors makes each sector show the worst state of its workers.
func (d *drawing) sectors(r Ring) {
	n := len(r.Workers)
	for s := range sectors {
		from, to := s*n/sectors, (s+1)*n/sectors
		workers := r.Workers[from:to]
		worst, trouble, lookAt := "none", PeerState(""), 0
		least, most := workers[0].Relays, workers[0].Relays
		for _, w := range workers {
			if c := r.coverage(w); slices.Index(byBadness, c) < slices.Index(byBadness, worst) {
				worst = c
			}
			if w.State.troubled() {
				lookAt++
				if trouble == "" || badness(w.State) < badness(trouble) {
					trouble = w.State
				}
			}
			least, most = min(least, w.Relays), max(most, w.Relays)
		}
		title := fmt.Sprintf("workers %s to %s of %s: %s relays each", number(from), number(to-1), number(n), span(least, most))
		turn := func(i int) float64 { return (float64(i) - 0.5) / float64(n) }
		slit := 0.12 / sectors
		if trouble != "" {
			title += fmt.Sprintf(", %s not active", number(lookAt))
			x, y := point(d.Radius-14, (turn(from)+turn(to))/2)
			d.Marks = append(d.Marks, mark{ID: fmt.Sprint("sector ", s), Class: "mark s-" + classOf(trouble), Shape: shapes[trouble], X: x, Y: y, Size: 3.2, Title: title})
		}
		d.Sectors = append(d.Sectors, sector{Class: "sector c-" + worst, Path: arcPath(d.Radius, turn(from)+slit, turn(to)-slit), Title: title})
	}
}

// byBadness lists the coverages, the worst first.
var byBadness = []string{"below", "at", "above", "none"}

// badness is the rank of a state: the lower, the more urgent for an operator.
func badness(s PeerState) int {
	return slices.Index([]PeerState{Unreachable, Evicted, HalfOpen, Connecting, Absent, Draining, Backup, Active, Candidate}, s)
}

// drawForwarding lays out this relay in the middle of the relays that a service is
// forwarded to.
func drawForwarding(peers []Peer, role string) drawing {
	shown := peers
	if len(shown) > mostMarked {
		shown = slices.DeleteFunc(slices.Clone(peers), func(p Peer) bool { return p.State == Candidate })
		shown = shown[:min(len(shown), mostMarked)]
	}
	primaries, backups := 0, 0
	for _, p := range peers {
		switch p.State {
		case Active:
			primaries++
		case Backup:
			backups++
		}
	}
	d := drawing{Radius: 138, Middle: "this", Unit: role}
	d.Alt = fmt.Sprintf("This %s forwards to %s of %s relays; %s more are in reserve.", role, number(primaries), number(len(peers)), number(backups))
	for i, p := range shown {
		turn := float64(i) / float64(len(shown))
		x, y := point(d.Radius, turn)
		if p.State != Candidate {
			d.Spokes = append(d.Spokes, spoke{Class: "spoke s-" + classOf(p.State), X: x, Y: y})
		}
		d.Marks = append(d.Marks, mark{ID: p.Node, Class: "mark c-relay s-" + classOf(p.State), Shape: shapes[p.State], X: x, Y: y, Size: 8, Title: fmt.Sprintf("%s: %s", p.Node, forwardState(p.State))})
		if len(shown) <= mostLabelled {
			x, y := point(d.Radius+18, turn)
			l := label{X: x, Y: y, Anchor: anchor(turn), Text: shorten(p.Node)}
			if p.State == Candidate {
				l.Class = "faint"
			}
			d.Labels = append(d.Labels, l)
		}
	}
	return d
}

// forwardState is the name of a state for a relay.
func forwardState(s PeerState) string {
	if s == Active {
		return "primary"
	}
	return string(s)
}

// shorten keeps the end of a name, because names in a fleet often have a common prefix.
func shorten(name string) string {
	if utf8.RuneCountInString(name) <= longestLabel {
		return name
	}
	runes := []rune(name)
	return "…" + string(runes[len(runes)-longestLabel+1:])
}

func classOf(s PeerState) string { return strings.ReplaceAll(string(s), " ", "-") }

// point returns the position of a turn (0 to 1, clockwise from the top) on a circle around
// the centre of the picture.
func point(radius, turn float64) (x, y float64) {
	sin, cos := math.Sincos(2 * math.Pi * turn)
	return radius * sin, -radius * cos
}

// arcPath draws clockwise from one turn to another, once around at most.
func arcPath(radius, from, to float64) string {
	x1, y1 := point(radius, from)
	x2, y2 := point(radius, to)
	if to-from >= 1 { // an arc that ends at its start would not be drawn
		x, y := point(radius, from+0.5)
		return fmt.Sprintf("M%.1f %.1fA%g %g 0 1 1 %.1f %.1fA%g %g 0 1 1 %.1f %.1fZ", x1, y1, radius, radius, x, y, radius, radius, x1, y1)
	}
	large := 0
	if to-from > 0.5 {
		large = 1
	}
	return fmt.Sprintf("M%.1f %.1fA%g %g 0 %d 1 %.1f %.1f", x1, y1, radius, radius, large, x2, y2)
}

// anchor returns the alignment of a label next to the circle at a turn.
func anchor(turn float64) string {
	switch x, _ := point(1, turn); {
	case x > 0.2:
		return "start"
	case x < -0.2:
		return "end"
	}
	return "middle"
}

// shapes are paths about as large as a circle of radius 1: states differ by shape and not
// only by colour.
var shapes = map[PeerState]string{
	Active:      "M1 0A1 1 0 1 1 -1 0A1 1 0 1 1 1 0Z",
	HalfOpen:    "M0 -1.2L1.2 0L0 1.2L-1.2 0Z",
	Evicted:     "M-.9 -.9L.9 .9M.9 -.9L-.9 .9",
	Draining:    "M-.9 -.9H.9V.9H-.9Z",
	Unreachable: "M0 -1.1L1.1 .9H-1.1Z",
	Absent:      "M1 0A1 1 0 1 1 -1 0A1 1 0 1 1 1 0Z",
	Connecting:  "M-1 0H1M0 -1V1",
	Backup:      "M1 0A1 1 0 1 1 -1 0A1 1 0 1 1 1 0Z",
	Candidate:   "M.5 0A.5 .5 0 1 1 -.5 0A.5 .5 0 1 1 .5 0Z",
}
