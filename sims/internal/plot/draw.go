package plot

import (
	"fmt"
	"image/color"
	"math"
	"strconv"

	gonum "gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/ringway/ringway/sims/internal/scenario"
)

const (
	width, height = 24 * vg.Centimeter, 10.5 * vg.Centimeter
	textSize      = 10
)

// Colours that Inline replaces. Pure black would not work: the SVG omits it as the default.
var (
	ink  = color.RGBA{1, 2, 3, 255}
	grid = color.RGBA{221, 223, 225, 255}
)

// markEvery is how many points of a line have marks at most; more marks would overlap.
const markEvery = 14

func sans(size vg.Length) text.Style {
	return text.Style{
		Color: ink, Handler: gonum.DefaultTextHandler,
		Font: font.From(font.Font{Typeface: "Liberation", Variant: "Sans"}, size),
	}
}

// drawOn draws a plot with its legend on the right.
func drawOn(c draw.Canvas, p *scenario.Plot) error {
	g := gonum.New()
	g.BackgroundColor = color.Transparent
	prepare(&g.X, p.X)
	prepare(&g.Y, p.Y)
	lines := plotter.NewGrid()
	lines.Horizontal.Color, lines.Vertical.Color = grid, grid
	if len(p.Categories) > 0 {
		lines.Vertical.Width = 0
	}
	g.Add(lines)
	legend := &legend{}
	looks, err := looksOf(p)
	if err != nil {
		return err
	}
	for i, s := range p.Series {
		if len(p.Categories) > 0 {
			err = addBars(g, legend, p, i, looks[i])
		} else {
			err = addLine(g, legend, s, looks[i])
		}
		if err != nil {
			return fmt.Errorf("plot %q, series %q: %w", p.Name, s.Name, err)
		}
	}
	for i, r := range p.References {
		g.Y.Min, g.Y.Max = min(g.Y.Min, r.At), max(g.Y.Max, r.At)
		legend.add(r.Label, &plotter.Line{LineStyle: rule(i)})
	}
	for _, e := range p.Events {
		g.X.Min, g.X.Max = min(g.X.Min, e.At), max(g.X.Max, e.At)
	}
	if len(p.Categories) > 0 {
		g.NominalX(p.Categories...)
		g.X.Width, g.X.Tick.Label.Rotation = 0, 0
		g.X.Min, g.X.Max = -0.6, float64(len(p.Categories))-0.4
		if slanted := len(p.Categories) > 6; slanted {
			g.X.Tick.Label.Rotation = math.Pi / 6
			g.X.Tick.Label.XAlign, g.X.Tick.Label.YAlign = draw.XRight, draw.YCenter
		}
	}
	headroom(&g.Y, p.Y)
	aside := vg.Length(0)
	if len(legend.names) > 1 {
		aside = legend.width()
		legend.draw(draw.Crop(c, c.Size().X-aside, 0, 0, 0))
	}
	c = draw.Crop(c, 0, -aside, 0, 0)
	// gonum/plot would place the label of a logarithmic axis at the arithmetic mean of its
	// ends, which is near the top, and shrink the picture to make room for the label.
	g.Y.Label.Text = ""
	name := sans(textSize + 1)
	name.Rotation, name.XAlign, name.YAlign = math.Pi/2, draw.XCenter, draw.YTop
	c.FillText(name, vg.Point{X: c.Min.X, Y: c.Center().Y}, p.Y.String())
	c = draw.Crop(c, 1.6*textSize, 0, 0, 0)
	labels := rows(g, c, p.Events)
	c = draw.Crop(c, 0, 0, 0, -eventLine*vg.Length(labels.count))
	g.Draw(c)
	drawMarks(g, c, p, labels)
	return nil
}

// prepare sets label, style and scale of an axis.
func prepare(axis *gonum.Axis, a scenario.Axis) {
	axis.Label.Text = a.String()
	axis.Label.TextStyle = styled(axis.Label.TextStyle, textSize+1)
	axis.Tick.Label = styled(axis.Tick.Label, textSize)
	axis.Color, axis.Tick.Color = ink, ink
	axis.Tick.Marker = ticks{}
	if a.Log {
		axis.Scale, axis.Tick.Marker = gonum.LogScale{}, logTicks{}
	}
}

func styled(s text.Style, size vg.Length) text.Style {
	own := sans(size)
	own.XAlign, own.YAlign, own.Rotation = s.XAlign, s.YAlign, s.Rotation
	return own
}

// headroom starts a linear axis at zero if that needs little space, and ends the axis above
// the highest point.
func headroom(axis *gonum.Axis, a scenario.Axis) {
	if a.Log {
		if axis.Min == axis.Max {
			axis.Min, axis.Max = axis.Min/2, axis.Max*2
		}
		return
	}
	if span := axis.Max - axis.Min; axis.Min > 0 && axis.Min < 2*span || span == 0 && axis.Min > 0 {
		axis.Min = 0
	}
	axis.Max += 0.05 * (axis.Max - axis.Min)
	if axis.Max == axis.Min {
		axis.Max++
	}
}

func addLine(g *gonum.Plot, l *legend, s *scenario.Series, look look) error {
	points := make(plotter.XYs, len(s.Points))
	for i, at := range s.Points {
		points[i].X, points[i].Y = at[0], at[1]
	}
	line, err := plotter.NewLine(points)
	if err != nil {
		return err
	}
	line.Color, line.Width, line.Dashes = look.hue(), 1.5, look.dashes()
	if s.Style == scenario.Dashed {
		g.Add(line)
		l.add(s.Name, line)
		return nil
	}
	marked := points
	if s.Style != scenario.Points {
		g.Add(line)
		if every := (len(points) + markEvery - 1) / markEvery; every > 1 {
			marked = nil
			for i := look.mark % every; i < len(points); i += every { // other points than those of the next line
				marked = append(marked, points[i])
			}
		}
	}
	scatter, err := plotter.NewScatter(marked)
	if err != nil {
		return err
	}
	scatter.Color, scatter.Radius, scatter.Shape = look.hue(), 2.4, marks[look.mark]
	g.Add(bare{scatter, scatter})
	if s.Style == scenario.Points {
		l.add(s.Name, scatter)
	} else {
		l.add(s.Name, line, scatter)
	}
	return nil
}

func addBars(g *gonum.Plot, l *legend, p *scenario.Plot, number int, look look) error {
	values := make(plotter.Values, len(p.Categories))
	for _, at := range p.Series[number].Points {
		values[int(at[0])] = at[1]
	}
	n := vg.Length(len(p.Series))
	if p.Y.Log { // a logarithmic axis has no zero at which a bar could start
		return addMarks(g, l, p, number, look)
	}
	each := min(24, 0.6*width/vg.Length(len(p.Categories))/n*0.8)
	bars, err := plotter.NewBarChart(values, each)
	if err != nil {
		return err
	}
	bars.Color, bars.LineStyle.Width = look.hue(), 0
	if look.outline {
		bars.LineStyle.Width, bars.LineStyle.Color = 1.5, ink
	}
	bars.Offset = each * (vg.Length(number) - (n-1)/2)
	g.Add(bare{bars, bars})
	l.add(p.Series[number].Name, bars)
	return nil
}

// addMarks draws a series of categories as single points. The points of one category are
// side by side.
func addMarks(g *gonum.Plot, l *legend, p *scenario.Plot, number int, look look) error {
	s := &scenario.Series{Name: p.Series[number].Name, Style: scenario.Points}
	aside := 0.12 * (float64(number) - float64(len(p.Series)-1)/2)
	for _, at := range p.Series[number].Points {
		s.At(at[0]+aside, at[1])
	}
	return addLine(g, l, s, look)
}

// bare is a plotter without glyph boxes: the padding that gonum/plot derives from glyph boxes
// leaves little room for a logarithmic axis.
type bare struct {
	gonum.Plotter
	gonum.DataRanger
}

// ticks are the default ticks, with the labels of label.
type ticks struct{}

func (ticks) Ticks(low, high float64) []gonum.Tick {
	out := gonum.DefaultTicks{}.Ticks(low, high)
	for i := range out {
		if out[i].Label != "" {
			out[i].Label = label(out[i].Value)
		}
	}
	return out
}

// logTicks label 1, 2 and 5 of each decade if there are few decades, otherwise 1 only.
type logTicks struct{}

func (logTicks) Ticks(low, high float64) []gonum.Tick {
	var out []gonum.Tick
	few := high/low < 300
	for decade := math.Pow(10, math.Floor(math.Log10(low))); decade <= high*1.0001; decade *= 10 {
		for digit := 1; digit < 10; digit++ {
			v := decade * float64(digit)
			if v < low*0.9999 || v > high*1.0001 {
				continue
			}
			t := gonum.Tick{Value: v}
			if digit == 1 || few && (digit == 2 || digit == 5) {
				t.Label = label(v)
			}
			out = append(out, t)
		}
	}
	if len(out) == 0 || high/low < 2 {
		out = append(out, gonum.Tick{Value: low, Label: label(low)}, gonum.Tick{Value: high, Label: label(high)})
	}
	return out
}

// label abbreviates the number of a tick: 20000 as 20k.
func label(v float64) string {
	switch size := math.Abs(v); {
	case size >= 1e9:
		return strconv.FormatFloat(v/1e9, 'g', 4, 64) + "G"
	case size >= 1e6:
		return strconv.FormatFloat(v/1e6, 'g', 4, 64) + "M"
	case size >= 1e4:
		return strconv.FormatFloat(v/1e3, 'g', 4, 64) + "k"
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}

// legend lists the series from top to bottom, each with a sample on the left and its name on
// the right.
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

// width returns the width of the legend, including a gap on its left.
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
