package affinity

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	drawnColumns    = 60 // on a larger ring, a column stands for several workers
	drawnNeighbours = 4  // relays drawn before and after the one that is asked for
)

// Draw draws the rings that a relay has a part in, a line for each relay near it: # where
// it connects to all workers of the column, + to some, . to none. A worker that is named is
// pointed at. It is empty for a relay that does not serve the service.
func (p *Plan) Draw(relay, worker string) string {
	index, ok := p.Index(relay)
	if !ok {
		return ""
	}
	var out strings.Builder
	for _, s := range p.seats[index] {
		p.draw(&out, s, worker)
	}
	return out.String()
}

func (p *Plan) draw(out *strings.Builder, s seat, worker string) {
	size := len(s.group.workers)
	columns := min(size, drawnColumns)
	per := ""
	if size > columns {
		per = fmt.Sprintf(", about %d to a column", (size+columns/2)/columns)
	}
	kind := "home"
	if !s.band.home {
		kind = "reserve"
	}
	fmt.Fprintf(out, "%s: ring of %s%s, %s (%s)\n", p.service, counted(size, "worker"), per, counted(len(s.band.relays), "relay"), kind)

	first, last := max(0, s.local-drawnNeighbours), min(len(s.band.relays), s.local+drawnNeighbours+1)
	width := 0
	for _, index := range s.band.relays[first:last] {
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
		fmt.Fprintf(out, "%c %-*s %s\n", mark, width, p.affine[s.band.relays[local]], seat{s.group, s.band, local}.columns(columns))
	}
	if last < len(s.band.relays) {
		fmt.Fprintf(out, "  %s after\n", counted(len(s.band.relays)-last, "relay"))
	}
	if w, ok := p.position(worker); ok {
		if pos, ok := slices.BinarySearch(s.group.workers, int32(w)); ok {
			fmt.Fprintf(out, "  %-*s %*s^ %s, position %d\n", width, "", column(pos, size, columns), "", worker, pos)
		}
	}
}

// column is where a position is drawn.
func column(pos, size, columns int) int { return pos * columns / size }

func (s seat) columns(columns int) string {
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
