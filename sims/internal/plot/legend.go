package plot

import (
	gonum "gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// legend names the series, one under the other: a sample on the left, the name on the
// right.
type legend struct {
	names   []string
	samples [][]gonum.Thumbnailer
}

const (
	legendGap    = 12
	legendSample = 20
	legendLine   = 1.5 * textSize
)

func (l *legend) add(name string, samples ...gonum.Thumbnailer) {
	l.names, l.samples = append(l.names, name), append(l.samples, samples)
}

// width is the room that the legend needs, with a gap on its left.
func (l *legend) width() vg.Length {
	widest := vg.Length(0)
	for _, name := range l.names {
		widest = max(widest, sans(textSize).Width(name))
	}
	return legendGap + legendSample + 6 + widest
}

// draw draws the legend from the top of a canvas.
func (l *legend) draw(c draw.Canvas) {
	style := sans(textSize)
	style.XAlign, style.YAlign = draw.XLeft, draw.YCenter
	for i, name := range l.names {
		top := c.Max.Y - vg.Length(i)*legendLine
		x := c.Min.X + legendGap
		box := draw.Canvas{Canvas: c.Canvas, Rectangle: vg.Rectangle{
			Min: vg.Point{X: x, Y: top - 0.8*legendLine}, Max: vg.Point{X: x + legendSample, Y: top - 0.2*legendLine},
		}}
		for _, sample := range l.samples[i] {
			sample.Thumbnail(&box)
		}
		c.FillText(style, vg.Point{X: x + legendSample + 6, Y: top - 0.5*legendLine}, name)
	}
}
