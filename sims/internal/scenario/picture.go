package scenario

import (
	"errors"
	"fmt"
	"math"
)

// Plot is a measurement as a picture. Run.Plot creates plots.
type Plot struct {
	Name       string `json:"name"` // within the scenario: lower case, digits and dashes
	Title      string `json:"title"`
	Conclusion string `json:"conclusion"` // one sentence; may be set after the series
	X          Axis   `json:"x"`
	Y          Axis   `json:"y"`
	// Categories turns the picture into a bar chart: each series has one bar for each
	// category, and the X of a point is the number of the category.
	Categories []string  `json:"categories,omitempty"`
	Series     []*Series `json:"series"`
	// Events are drawn as vertical lines, References as horizontal lines. They explain the
	// picture and are no measurements, so the JSON form does not have them.
	Events     []Mark `json:"-"`
	References []Mark `json:"-"`
}

// Mark is a line across a picture, at a value of one axis.
type Mark struct {
	At    float64
	Label string // a few words
}

// Axis is one axis of a plot.
type Axis struct {
	Label string `json:"label"`
	Unit  string `json:"unit"` // "ms", "connections", "1" for a plain ratio
	Log   bool   `json:"log,omitempty"`
}

// String returns the label with the unit.
func (a Axis) String() string {
	if a.Unit == "1" || a.Unit == "" || a.Unit == a.Label {
		return a.Label
	}
	return a.Label + " (" + a.Unit + ")"
}

// Style is the way to draw a series.
type Style string

// The styles of a series.
const (
	Line   Style = ""
	Dashed Style = "dashed" // for a bound or a formula
	Points Style = "points"
)

// Series is one line of a plot.
type Series struct {
	Name   string       `json:"name"`
	Style  Style        `json:"style,omitempty"`
	Points [][2]float64 `json:"points"` // x, y
}

// Line adds a series that is drawn as a line.
func (p *Plot) Line(name string) *Series { return p.series(name, Line) }

// Dashed adds a series for a bound or a formula.
func (p *Plot) Dashed(name string) *Series { return p.series(name, Dashed) }

// Scatter adds a series of single points.
func (p *Plot) Scatter(name string) *Series { return p.series(name, Points) }

// Bars adds a series with one value for each category.
func (p *Plot) Bars(name string, values []float64) *Series {
	s := p.series(name, Line)
	for i, v := range values {
		s.At(float64(i), v)
	}
	return s
}

// Event marks a moment on the X axis, such as the beginning of a fault.
func (p *Plot) Event(at float64, label string) {
	p.Events = append(p.Events, Mark{at, label})
}

// Reference marks a value of the Y axis, such as the one to compare the others with.
func (p *Plot) Reference(at float64, label string) {
	p.References = append(p.References, Mark{at, label})
}

func (p *Plot) series(name string, style Style) *Series {
	s := &Series{Name: name, Style: style}
	p.Series = append(p.Series, s)
	return s
}

// At adds a point and returns the series.
func (s *Series) At(x, y float64) *Series {
	s.Points = append(s.Points, [2]float64{x, y})
	return s
}

func validMarks(marks []Mark, axis Axis) error {
	for _, m := range marks {
		if m.Label == "" || math.IsNaN(m.At) || math.IsInf(m.At, 0) || axis.Log && m.At <= 0 {
			return fmt.Errorf("the line %q at %v: it needs a label and a value that the axis %q has", m.Label, m.At, axis.Label)
		}
	}
	return nil
}

func (p *Plot) validate() error {
	switch {
	case !validName.MatchString(p.Name) || p.Title == "":
		return fmt.Errorf("plot %q: it needs a name in lower case and a title", p.Name)
	case p.X.Label == "" || p.Y.Label == "" || p.X.Unit == "" && len(p.Categories) == 0 || p.Y.Unit == "":
		return fmt.Errorf("plot %q: each axis needs a label and a unit; a plain ratio has the unit 1", p.Name)
	case p.Conclusion == "":
		return fmt.Errorf("plot %q: it needs a conclusion, the one sentence that it shows", p.Name)
	case len(p.Series) == 0:
		return fmt.Errorf("plot %q: it has no series", p.Name)
	case len(p.Events) > 0 && len(p.Categories) > 0:
		return fmt.Errorf("plot %q: it has events, and categories instead of an X axis", p.Name)
	}
	if err := errors.Join(validMarks(p.Events, p.X), validMarks(p.References, p.Y)); err != nil {
		return fmt.Errorf("plot %q: %w", p.Name, err)
	}
	for _, s := range p.Series {
		if len(s.Points) == 0 || len(p.Categories) > 0 && len(s.Points) != len(p.Categories) {
			return fmt.Errorf("plot %q, series %q: it has %d points, %d categories", p.Name, s.Name, len(s.Points), len(p.Categories))
		}
		for _, at := range s.Points {
			for _, v := range at {
				if math.IsNaN(v) || math.IsInf(v, 0) {
					return fmt.Errorf("plot %q, series %q: %v is no point", p.Name, s.Name, at)
				}
			}
			if p.X.Log && at[0] <= 0 || p.Y.Log && at[1] <= 0 {
				return fmt.Errorf("plot %q, series %q: %v cannot be drawn on a logarithmic axis", p.Name, s.Name, at)
			}
		}
	}
	return nil
}
