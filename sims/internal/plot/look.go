package plot

import (
	"fmt"
	"image/color"
	"math"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/ringway/ringway/sims/internal/scenario"
)

// palette is distinguishable for colour-blind readers (after Okabe and Ito) and readable on
// light and dark backgrounds.
var palette = []color.RGBA{
	{0, 125, 195, 255}, {222, 120, 0, 255}, {0, 150, 110, 255}, {200, 100, 155, 255},
	{130, 110, 200, 255}, {205, 75, 40, 255}, {60, 165, 225, 255}, {150, 140, 0, 255},
	{125, 125, 125, 255}, {160, 95, 50, 255},
}

// marks are filled because outlines are hard to see on a dark background. Neighbours in this
// list are easy to distinguish.
var marks = []draw.GlyphDrawer{
	draw.CircleGlyph{}, draw.BoxGlyph{}, turned(triangle, 0.25), star(4, 0.35, 0), turned(triangle, 0.75), star(2, 1, 0), turned(triangle, 0),
	star(5, 0.4, 0.25), star(2, 0.4, 0.25), star(3, 0.3, 0.25), turned(triangle, 0.5), star(4, 0.35, 0.125),
}

// dashes are the patterns of dashed lines, in points.
var dashes = [][]vg.Length{{5, 3}, {1.5, 2}, {10, 3}, {10, 3, 2, 3}, {5, 2, 1.5, 2, 1.5, 2}, {14, 3, 5, 3}}

// polygon is a filled mark; its corners are multiples of the radius.
type polygon []vg.Point

// DrawGlyph implements draw.GlyphDrawer.
func (p polygon) DrawGlyph(c *draw.Canvas, style draw.GlyphStyle, at vg.Point) {
	c.SetColor(style.Color)
	var path vg.Path
	for i, corner := range p {
		to := vg.Point{X: at.X + 1.3*style.Radius*corner.X, Y: at.Y + 1.3*style.Radius*corner.Y}
		if i == 0 {
			path.Move(to)
		} else {
			path.Line(to)
		}
	}
	path.Close()
	c.Fill(path)
}

var triangle = star(3, 0.5, 0)

// star has tips at the radius 1 and corners between them at the radius inner; turn is the
// angle of the first tip as a part of the circle.
func star(tips int, inner, turn float64) polygon {
	var out polygon
	for i := range 2 * tips {
		radius := 1.0
		if i%2 == 1 {
			radius = inner
		}
		angle := 2 * math.Pi * (turn + float64(i)/float64(2*tips))
		out = append(out, vg.Point{X: vg.Length(radius * math.Cos(angle)), Y: vg.Length(radius * math.Sin(angle))})
	}
	return out
}

func turned(p polygon, by float64) polygon {
	sin, cos := math.Sincos(2 * math.Pi * by)
	out := make(polygon, len(p))
	for i, at := range p {
		out[i] = vg.Point{X: at.X*vg.Length(cos) - at.Y*vg.Length(sin), Y: at.X*vg.Length(sin) + at.Y*vg.Length(cos)}
	}
	return out
}

// look is what distinguishes a series: a colour, and a mark, a pattern of dashes or, of bars,
// an outline.
type look struct {
	colour  int
	mark    int // -1 for a series without marks
	dash    int // -1 for a continuous line
	outline bool
}

func (l look) hue() color.RGBA { return palette[l.colour] }

func (l look) dashes() []vg.Length {
	if l.dash < 0 {
		return nil
	}
	return dashes[l.dash]
}

// looksOf gives each series a look of its own. The place of a series decides its colour. Its
// place among the series of its kind decides mark or dashes, so that these repeat late. More
// series than there are looks are an error, because two of them would be drawn alike.
func looksOf(p *scenario.Plot) ([]look, error) {
	out := make([]look, len(p.Series))
	seen := map[look]int{}
	marked, dashed := 0, 0
	for i, s := range p.Series {
		l := look{colour: i % len(palette), mark: -1, dash: -1}
		switch {
		case len(p.Categories) > 0 && !p.Y.Log:
			l.outline = i/len(palette)%2 == 1
		case s.Style == scenario.Dashed:
			l.dash = dashed % len(dashes)
			dashed++
		default:
			l.mark = marked % len(marks)
			marked++
		}
		if other, ok := seen[l]; ok {
			return nil, fmt.Errorf("plot %q: the series %q would look like the series %q: draw fewer than %d series in one picture", p.Name, s.Name, p.Series[other].Name, i+1)
		}
		out[i], seen[l] = l, i
	}
	return out, nil
}
