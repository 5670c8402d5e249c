package statuspage

import (
	"fmt"
	"math"
)

// point is where a turn (0 to 1, clockwise from the top) is on a circle around the
// middle of the picture.
func point(radius, turn float64) (x, y float64) {
	sin, cos := math.Sincos(2 * math.Pi * turn)
	return radius * sin, -radius * cos
}

// arcPath goes clockwise from one turn to another, at most once around.
func arcPath(radius, from, to float64) string {
	x1, y1 := point(radius, from)
	x2, y2 := point(radius, to)
	if to-from >= 1 { // an arc that ends where it starts would not be drawn
		x, y := point(radius, from+0.5)
		return fmt.Sprintf("M%.1f %.1fA%g %g 0 1 1 %.1f %.1fA%g %g 0 1 1 %.1f %.1fZ", x1, y1, radius, radius, x, y, radius, radius, x1, y1)
	}
	large := 0
	if to-from > 0.5 {
		large = 1
	}
	return fmt.Sprintf("M%.1f %.1fA%g %g 0 %d 1 %.1f %.1f", x1, y1, radius, radius, large, x2, y2)
}

// anchor is how a label beside the circle is aligned at a turn.
func anchor(turn float64) string {
	switch x, _ := point(1, turn); {
	case x > 0.2:
		return "start"
	case x < -0.2:
		return "end"
	}
	return "middle"
}

// shapes are paths about as large as a circle of radius 1: states differ by shape, not
// by colour alone.
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
