package plot

import (
	"cmp"
	"slices"

	gonum "gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/ringway/ringway/sims/internal/scenario"
)

// eventLine is the height of a line of labels of events.
const eventLine = 1.4 * textSize

// rule is the style of the line of a reference; events have the first.
func rule(number int) draw.LineStyle {
	return draw.LineStyle{Color: ink, Width: 0.9, Dashes: dashes[(number+1)%len(dashes)]}
}

// eventRows places the labels of events above the picture, in as many lines as they need not
// to overlap.
type eventRows struct {
	row   []int // by event
	count int
}

func rows(g *gonum.Plot, c draw.Canvas, events []scenario.Mark) eventRows {
	out := eventRows{row: make([]int, len(events))}
	data := g.DataCanvas(c)
	// From the last event on, because a label is right of its line: the line of an event then
	// crosses no label of a lower row.
	order := make([]int, len(events))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(events[b].At, events[a].At) })
	type place struct {
		row      int
		from, to vg.Length
	}
	var taken []place
	for _, i := range order {
		from, to := labelSpan(g, data, events[i])
		for slices.ContainsFunc(taken, func(p place) bool { return p.row == out.row[i] && from < p.to && p.from < to }) {
			out.row[i]++
		}
		taken = append(taken, place{out.row[i], from, to})
		out.count = max(out.count, out.row[i]+1)
	}
	return out
}

// labelSpan returns where the label of an event begins and ends: right of its line, or left of
// the line where the picture ends.
func labelSpan(g *gonum.Plot, data draw.Canvas, e scenario.Mark) (from, to vg.Length) {
	x, _ := g.Transforms(&data)
	at, wide := x(e.At), sans(textSize).Width(e.Label)
	from = min(at, max(data.Min.X, data.Max.X-wide))
	return from, from + wide + textSize/2
}

// drawMarks draws events and references on a picture that is drawn.
func drawMarks(g *gonum.Plot, c draw.Canvas, p *scenario.Plot, labels eventRows) {
	data := g.DataCanvas(c)
	x, y := g.Transforms(&data)
	for i, r := range p.References {
		at := y(r.At)
		data.StrokeLine2(rule(i), data.Min.X, at, data.Max.X, at)
	}
	for i, e := range p.Events {
		at, top := x(e.At), data.Max.Y+eventLine*vg.Length(labels.row[i])
		c.StrokeLine2(rule(0), at, data.Min.Y, at, top)
		style := sans(textSize)
		style.XAlign, style.YAlign = draw.XLeft, draw.YBottom
		from, _ := labelSpan(g, data, e)
		c.FillText(style, vg.Point{X: from, Y: top + 2}, e.Label)
	}
}
