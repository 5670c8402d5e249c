package statuspage

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	// mostLabelled, mostMarked: with more workers on the ring there is no room for
	// their names, or for a mark each.
	mostLabelled = 32
	mostMarked   = 120
	// sectors are drawn in place of the marks then.
	sectors = 120
	// mostInner is how many arcs of other relays have room inside the ring.
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
	// Middle is what stands in the middle: a number, and what it counts.
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

// coverage sorts a worker by the relays that it should have.
func (r Ring) coverage(w RingWorker) string {
	switch {
	case w.State == Draining || w.State == Absent:
		return "none" // it should have none
	case w.Relays < r.Minimum:
		return "below"
	case w.Relays == r.Minimum:
		return "at"
	}
	return "above"
}

// Tally counts workers by coverage and by state.
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

// Tally is what a ring has of each.
type Tally struct {
	Below, At, Above int
	// Mine are connected to this relay.
	Mine int
	// Min and Max are relays per worker.
	Min, Max int
	States   map[PeerState]int
}

// Troubles lists the states to look at with their numbers, for example "2 evicted".
func (t Tally) Troubles() (out []string) {
	for _, s := range []PeerState{Unreachable, Evicted, HalfOpen, Connecting, Absent, Draining} {
		if n := t.States[s]; n > 0 {
			out = append(out, fmt.Sprintf("%s %s", number(n), s))
		}
	}
	return out
}

// draw lays out a ring, as docs/projection.svg shows it: workers on the circle, this
// relay's arc outside, those of the others inside.
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

// sectors has each sector show the worst of its workers.
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

// byBadness are the coverages, the worst first.
var byBadness = []string{"below", "at", "above", "none"}

// badness is less for what an operator should look at first.
func badness(s PeerState) int {
	return slices.Index([]PeerState{Unreachable, Evicted, HalfOpen, Connecting, Absent, Draining, Backup, Active, Candidate}, s)
}

// drawForwarding lays out the relays that a service is forwarded to around this one.
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
		d.Marks = append(d.Marks, mark{ID: p.ID, Class: "mark c-relay s-" + classOf(p.State), Shape: shapes[p.State], X: x, Y: y, Size: 8, Title: fmt.Sprintf("%s: %s", p.ID, forwardState(p.State))})
		if len(shown) <= mostLabelled {
			x, y := point(d.Radius+18, turn)
			l := label{X: x, Y: y, Anchor: anchor(turn), Text: shorten(p.ID)}
			if p.State == Candidate {
				l.Class = "faint"
			}
			d.Labels = append(d.Labels, l)
		}
	}
	return d
}

// forwardState is what a state is called for a relay.
func forwardState(s PeerState) string {
	if s == Active {
		return "primary"
	}
	return string(s)
}

// shorten keeps the end of a name, where those of one fleet differ.
func shorten(name string) string {
	if utf8.RuneCountInString(name) <= longestLabel {
		return name
	}
	runes := []rune(name)
	return "…" + string(runes[len(runes)-longestLabel+1:])
}

func classOf(s PeerState) string { return strings.ReplaceAll(string(s), " ", "-") }
