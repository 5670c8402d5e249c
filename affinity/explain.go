package affinity

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Explanation states whether a relay should be connected to a worker, and why.
type Explanation struct {
	Service string `json:"service"`
	Relay   string `json:"relay"`
	Worker  string `json:"worker"`

	// Connected is true if the plan connects the two.
	Connected bool `json:"connected"`
	// Weight is the share of the relay's traffic for the worker, 0 to 1.
	Weight float64 `json:"weight"`
	// Index is the relay's index among the affine relays, -1 if it is not one of them.
	Index int `json:"index"`
	// Position is the worker's position on the ring that Range refers to; -1 if the worker
	// does not offer the service. Ring is the number of workers on that ring.
	Position int `json:"position"`
	Ring     int `json:"ring"`
	// Range is the relay's range on that ring; it is empty with rendezvous.
	Range string `json:"range,omitempty"`
	// Distance is the result of [Plan.Distance].
	Distance int `json:"distance"`
	// Tier is how near relay and worker are: same_dc, same_region or global. Home is true
	// if the relay is at home in the worker's group; otherwise it is a guest or a reserve.
	Tier string `json:"tier,omitempty"`
	Home bool   `json:"home"`
	// Reason explains Connected in one sentence.
	Reason string `json:"reason"`
}

// String returns the reason.
func (e Explanation) String() string { return e.Reason }

// Explain returns whether a relay should be connected to a worker, and why. Unknown ids
// are allowed.
func (p *Plan) Explain(relay, worker string) Explanation {
	e := Explanation{Service: p.service, Relay: relay, Worker: worker, Index: -1, Position: -1, Distance: -1}
	index, affine := p.Index(relay)
	w, offered := p.position(worker)
	if affine {
		e.Index = index
	}
	if offered {
		e.Position, e.Ring = w, len(p.workers)
	}
	switch {
	case !affine && slices.Contains(p.skip, relay):
		e.Reason = fmt.Sprintf("%s does not serve %s: it is on the skip list; it forwards to one of the %d relays that do", relay, p.service, len(p.affine))
	case !affine:
		e.Reason = fmt.Sprintf("%s does not serve %s: the %d relays that do are %s", relay, p.service, len(p.affine), someOf(p.affine))
	case !offered:
		e.Reason = fmt.Sprintf("%s does not offer %s, or takes no requests now; %d other workers do", worker, p.service, len(p.workers))
	default:
		p.explain(&e, index, w)
	}
	return e
}

// explain completes the explanation for an affine relay and a worker of the service.
func (p *Plan) explain(e *Explanation, index, worker int) {
	relayPlace := p.relayPlaces.distinct[p.relayPlaces.of[index]]
	workerPlace := p.workerPlaces.distinct[p.workerPlaces.of[worker]]
	e.Tier = relayPlace.Tier(workerPlace).String()
	s, pos := p.shareAt(index, worker)
	if s == nil {
		e.Reason = fmt.Sprintf("%s is in %v, and the relays in %v send nothing there, because nearer workers can take their traffic",
			e.Worker, workerPlace, relayPlace)
		return
	}
	shape := s.set.shape
	e.Position, e.Ring, e.Home, e.Distance = pos, len(s.group.workers), s.set.part == homeSet, p.distance(*s, pos)
	e.Connected = e.Distance == 0
	if e.Connected {
		assignments, _ := p.Assignments(index) // the index is valid
		for _, a := range assignments {
			if a.Worker == e.Worker {
				e.Weight = a.Weight
			}
		}
	}
	var reason strings.Builder
	switch {
	case shape.everything():
		e.Range = shape.project(s.local).String()
		fmt.Fprintf(&reason, "all relays of this ring (%d) connect to all of its workers (%d)", shape.Relays, shape.Workers)
	case s.set.links == nil:
		e.Range = shape.project(s.local).String()
		fmt.Fprintf(&reason, "%s is at position %d, %s the range %s of %s", e.Worker, pos, outside(e.Distance), e.Range, e.Relay)
	default:
		rank := p.rank(*s, pos)
		fmt.Fprintf(&reason, "%s is choice %d of %d for %s, which takes the first %d", e.Relay, rank+1, shape.Relays, e.Worker, shape.PeersPerWorker)
		if e.Connected && rank >= shape.PeersPerWorker {
			reason.WriteString("; it is connected anyway, because too few workers chose it")
		}
	}
	switch s.set.part {
	case guestSet:
		reason.WriteString("; it is a guest, because relays elsewhere have more traffic than their own workers should take")
	case reserveRegion, reserveGlobal:
		reason.WriteString("; it is a reserve, because too few relays are at home there")
	}
	e.Reason = reason.String()
}

func outside(distance int) string {
	if distance == 0 {
		return "inside"
	}
	return counted(distance, "place") + " outside"
}

// someOf lists at most five ids, then the number of the others.
func someOf(ids []string) string {
	const few = 5
	if len(ids) <= few {
		return strings.Join(ids, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(ids[:few], ", "), len(ids)-few)
}

const (
	drawnColumns    = 60 // on a larger ring, a column stands for several workers
	drawnNeighbours = 4  // relays drawn before and after the requested one
)

// Draw draws the rings that a relay has a part in, with a line for each relay near it: #
// where that relay connects to all workers of the column, + to some, . to none. If worker
// is not empty, a caret marks its position. The result is empty for a relay that does not
// serve the service.
func (p *Plan) Draw(relay, worker string) string {
	index, ok := p.Index(relay)
	if !ok {
		return ""
	}
	var out strings.Builder
	for _, s := range p.shares[index] {
		p.draw(&out, s, worker)
	}
	return out.String()
}

func (p *Plan) draw(out *strings.Builder, s relayShare, worker string) {
	size := len(s.group.workers)
	columns := min(size, drawnColumns)
	per := ""
	if size > columns {
		per = fmt.Sprintf(", about %d to a column", (size+columns/2)/columns)
	}
	fmt.Fprintf(out, "%s: ring of %s%s, %s (%s)\n", p.service, counted(size, "worker"), per, counted(len(s.set.relays), "relay"), s.set.part)

	first, last := max(0, s.local-drawnNeighbours), min(len(s.set.relays), s.local+drawnNeighbours+1)
	width := 0
	for _, index := range s.set.relays[first:last] {
		width = max(width, utf8.RuneCountInString(p.affine[index]))
	}
	if first > 0 {
		fmt.Fprintf(out, "  %s before\n", counted(first, "relay"))
	}
	for local := first; local < last; local++ {
		mark := ' '
		if local == s.local {
			mark = '>'
		}
		fmt.Fprintf(out, "%c %-*s %s\n", mark, width, p.affine[s.set.relays[local]], relayShare{s.group, s.set, local}.columns(columns))
	}
	if last < len(s.set.relays) {
		fmt.Fprintf(out, "  %s after\n", counted(len(s.set.relays)-last, "relay"))
	}
	if w, ok := p.position(worker); ok {
		if pos, ok := slices.BinarySearch(s.group.workers, int32(w)); ok {
			fmt.Fprintf(out, "  %-*s %*s^ %s, position %d\n", width, "", column(pos, size, columns), "", worker, pos)
		}
	}
}

// column returns the column in which a position is drawn.
func column(pos, size, columns int) int { return pos * columns / size }

func (s relayShare) columns(columns int) string {
	size := len(s.group.workers)
	linked, all := make([]int, columns), make([]int, columns)
	for pos := range size {
		all[column(pos, size, columns)]++
	}
	for pos := range s.positions() {
		linked[column(pos, size, columns)]++
	}
	line := make([]byte, columns)
	for c := range line {
		switch linked[c] {
		case 0:
			line[c] = '.'
		case all[c]:
			line[c] = '#'
		default:
			line[c] = '+'
		}
	}
	return string(line)
}

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
