package docgen

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/ringway/ringway/affinity"
)

// Projection draws which workers each relay connects to according to the plan: the workers
// on the inner circle, one arc for the range of each relay.
func Projection(w io.Writer, shape affinity.Shape) error {
	const size, inner, step = 560.0, 120.0, 16.0
	point := func(radius, turn float64) (x, y float64) {
		angle := 2*math.Pi*turn - math.Pi/2
		return size/2 + radius*math.Cos(angle), size/2 + radius*math.Sin(angle)
	}
	turn := func(worker float64) float64 { return worker / float64(shape.Workers) }

	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" font-family="sans-serif" font-size="11">`+"\n", size, size)
	fmt.Fprintf(&b, "<title>%d relays projected onto the ring of %d workers: every worker is in the ranges of exactly %d relays</title>\n",
		shape.Relays, shape.Workers, shape.PeersPerWorker)
	fmt.Fprintf(&b, `<rect width="%g" height="%g" fill="white"/>`+"\n", size, size)
	fmt.Fprintf(&b, `<circle cx="%g" cy="%g" r="%g" fill="none" stroke="#999"/>`+"\n", size/2, size/2, inner)
	for i := range shape.Relays {
		r, err := shape.Range(i)
		if err != nil {
			return err
		}
		radius := inner + step*float64(i+1) + 6
		hue := 360 * i / shape.Relays
		x1, y1 := point(radius, turn(float64(r.Start())-0.35))
		x2, y2 := point(radius, turn(float64(r.Start()+r.Len())-0.65))
		large := 0
		if 2*(r.Len()-1) > r.Size() {
			large = 1
		}
		fmt.Fprintf(&b, `<path d="M %.1f %.1f A %g %g 0 %d 1 %.1f %.1f" fill="none" stroke="hsl(%d,65%%,45%%)" stroke-width="6" stroke-linecap="round"/>`+"\n",
			x1, y1, radius, radius, large, x2, y2, hue)
		x, y := point(radius, turn(float64(r.Start())-0.75))
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="middle" dominant-baseline="middle" fill="hsl(%d,65%%,30%%)">r%d</text>`+"\n", x, y, hue, i)
	}
	for i := range shape.Workers {
		x, y := point(inner, turn(float64(i)))
		fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="10" fill="#eee" stroke="#555"/>`+"\n", x, y)
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="middle" dominant-baseline="central">w%d</text>`+"\n", x, y, i)
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}
