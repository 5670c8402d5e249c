package plot_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"image/png"
	"io"
	"strings"
	"testing"

	"github.com/ringway/ringway/sims/internal/plot"
	"github.com/ringway/ringway/sims/internal/scenario"
)

func curve() *scenario.Plot {
	p := &scenario.Plot{Name: "curve", Title: "A <curve>", Conclusion: "It rises.",
		X: scenario.Axis{Label: "load", Unit: "%"}, Y: scenario.Axis{Label: "latency", Unit: "ms"}}
	a, b := p.Line("a & b"), p.Dashed("bound")
	for i := range 50 {
		a.At(float64(i), float64(i*i))
		b.At(float64(i), 1000)
	}
	p.Scatter("points").At(3, 7)
	p.Event(20, "a wave begins")
	p.Event(22, "it ends")
	p.Reference(-500, "the least")
	return p
}

func bars() *scenario.Plot {
	p := &scenario.Plot{Name: "bars", Title: "Bars", Conclusion: "One is high.", X: scenario.Axis{Label: "policy"},
		Y: scenario.Axis{Label: "share", Unit: "%"}, Categories: []string{"one", "two", "three"}}
	p.Bars("left", []float64{1, 2, 3})
	p.Bars("right", []float64{3, 2, 1})
	return p
}

// plots are all kinds, on linear and logarithmic axes.
func plots() map[string]*scenario.Plot {
	all := map[string]*scenario.Plot{"curve": curve(), "bars": bars()}
	log := curve()
	for _, s := range log.Series {
		for i := range s.Points {
			s.Points[i][0]++
			s.Points[i][1]++
		}
	}
	log.X.Log, log.Y.Log = true, true
	log.References[0].At = 0.5
	all["log"] = log
	logBars := bars()
	logBars.Y.Log = true
	all["log bars"] = logBars
	flat := &scenario.Plot{Name: "flat", Title: "Flat", Conclusion: "Nothing.", X: scenario.Axis{Label: "x", Unit: "1"}, Y: scenario.Axis{Label: "y", Unit: "1"}}
	flat.Line("zero").At(0, 0)
	all["flat"] = flat
	return all
}

func TestEqualPlotsGiveEqualBytes(t *testing.T) {
	for name, p := range plots() {
		for kind, draw := range map[string]func(*scenario.Plot) ([]byte, error){
			"svg": plot.SVG, "png": plot.PNG,
			"inline": func(p *scenario.Plot) ([]byte, error) { s, err := plot.Inline(p); return []byte(s), err },
		} {
			a, err := draw(p)
			if err != nil {
				t.Fatalf("%s, %s: %v", name, kind, err)
			}
			if b, err := draw(p); err != nil || !bytes.Equal(a, b) {
				t.Errorf("%s, %s: two drawings differ, %v", name, kind, err)
			}
			switch kind {
			case "png":
				if _, err := png.Decode(bytes.NewReader(a)); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			default:
				if err := wellFormed(a); err != nil {
					t.Errorf("%s, %s: %v", name, kind, err)
				}
			}
		}
	}
}

func wellFormed(text []byte) error {
	d := xml.NewDecoder(bytes.NewReader(text))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func TestWhatAReaderNeedsIsInThePicture(t *testing.T) {
	svg, err := plot.SVG(curve())
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"A &lt;curve&gt;", "load (%)", "latency (ms)", "a &amp; b", "bound", "points", "stroke-dasharray", "a wave begins", "it ends", "the least"} {
		if !strings.Contains(string(svg), text) {
			t.Errorf("the picture lacks %q", text)
		}
	}
	svg, err = plot.SVG(bars())
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"one", "two", "three", "left", "right", "share (%)", ">policy<"} {
		if !strings.Contains(string(svg), text) {
			t.Errorf("the bars lack %q", text)
		}
	}
}

// An inline picture takes the colours of the page, needs nothing from elsewhere, and its
// text fits whatever the font.
func TestAnInlinePictureIsPartOfItsPage(t *testing.T) {
	text, err := plot.Inline(curve())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(text, "<svg role=") || !strings.Contains(text, "currentColor") || !strings.Contains(text, "stroke-opacity:0.15") {
		t.Errorf("%.200s", text)
	}
	for _, no := range []string{"#010203", "#DDDFE1", "http", "#FFFFFF"} {
		if strings.Contains(text, no) {
			t.Errorf("it has %s", no)
		}
	}
	if texts := strings.Count(text, "<text "); texts == 0 || strings.Count(text, "textLength=") != texts {
		t.Errorf("%d texts, %d of them fitted", texts, strings.Count(text, "textLength="))
	}
}

// many is a plot with n series of each kind of line, or n series of bars.
func many(n int, bars bool) *scenario.Plot {
	p := &scenario.Plot{Name: "many", Title: "Many", Conclusion: "Many.", X: scenario.Axis{Label: "x", Unit: "1"}, Y: scenario.Axis{Label: "y", Unit: "1"}}
	for i := range n {
		name := fmt.Sprintf("series %d", i)
		if bars {
			p.Categories = []string{"one"}
			p.Bars(name, []float64{1})
			continue
		}
		p.Line(name).At(1, 1).At(2, 2)
		p.Dashed(name+", law").At(1, 1).At(2, 2)
	}
	return p
}

// The picture with the most series is the cost of gossip, with six points and six laws; a
// comparison of two runs has twice as many. The largest bar chart has eight series in a
// comparison.
func TestNoTwoSeriesLookAlike(t *testing.T) {
	for _, p := range []*scenario.Plot{many(12, false), many(20, true)} {
		svg, err := plot.SVG(p)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Categories) > 0 && bytes.Count(svg, []byte("stroke:#010203;stroke-width:1.5")) == 0 {
			t.Error("bars of the same colour have no outline")
		}
	}
	for _, p := range []*scenario.Plot{many(200, false), many(21, true)} {
		if _, err := plot.SVG(p); err == nil || !strings.Contains(err.Error(), "would look like") || !strings.Contains(err.Error(), "fewer than") {
			t.Errorf("%d series: %v", len(p.Series), err)
		}
	}
}

// A single series with a reference has a legend, which names the reference.
func TestAReferenceIsInTheLegend(t *testing.T) {
	p := many(1, true)
	p.Reference(3, "the bound")
	svg, err := plot.SVG(p)
	if err != nil || !strings.Contains(string(svg), "the bound") || !strings.Contains(string(svg), "series 0") {
		t.Errorf("%v", err)
	}
}
