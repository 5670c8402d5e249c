package gossip

import (
	"fmt"
	"math"
)

// law is y = a + b·g(n), with what is known of how it grows in g.
type law struct {
	shape shape
	a, b  float64
}

// shape is how something grows with the number of members, and that in words.
type shape struct {
	text string
	grow func(n float64) float64
}

// The shapes. What spreads like an infection takes rounds of the logarithm; so does suspicion,
// by its definition. memberlist sends each news of a member ⌈log10(n+1)⌉ times a
// constant, package membership each broadcast ln n + 12 times, and full states go between two
// members ever more rarely the more there are.
var (
	logarithm = shape{"log10 n", math.Log10}
	copies    = shape{"⌈log10(n+1)⌉", func(n float64) float64 { return math.Ceil(math.Log10(n + 1)) }}
	share     = shape{"n·(ln n + 12)", func(n float64) float64 { return n * (math.Log(n) + 12) }}
	linear    = shape{"n", func(n float64) float64 { return n }}
	exchanges = shape{"n/(⌈log2(n/32)⌉+1)", func(n float64) float64 {
		if n <= 32 {
			return n
		}
		return n / (math.Ceil(math.Log2(n/32)) + 1)
	}}
)

// point is something measured at one size.
type point struct{ n, y float64 }

// fit finds the law of a shape with the least squares of the relative errors, so that the
// small fleets count as much as the large ones. Where the shape is the same at all sizes the law
// is in proportion to it.
func fit(s shape, points []point) law {
	var w, wg, wgg, wy, wgy float64
	for _, p := range points {
		g, weight := s.grow(p.n), 1/max(p.y*p.y, 1e-12)
		w += weight
		wg += weight * g
		wgg += weight * g * g
		wy += weight * p.y
		wgy += weight * g * p.y
	}
	d := w*wgg - wg*wg
	if d <= 1e-9*w*wgg {
		return law{shape: s, b: wgy / wgg}
	}
	b := (w*wgy - wg*wy) / d
	return law{s, (wy - b*wg) / w, b}
}

func (l law) at(n float64) float64 { return l.a + l.b*l.shape.grow(n) }

// off is by how much of the measured value the law misses a point.
func (l law) off(p point) float64 { return (l.at(p.n) - p.y) / p.y }

func (l law) String() string {
	return fmt.Sprintf("%.4g %+.4g · %s", l.a, l.b, l.shape.text)
}
