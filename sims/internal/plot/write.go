package plot

import (
	"bytes"
	"fmt"
	"html"
	"image/color"
	"regexp"
	"strconv"
	"strings"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/ringway/ringway/sims/internal/scenario"
)

const fonts = "'Liberation Sans',Arial,Helvetica,sans-serif"

// SVG draws a plot as a separate file, dark on white.
func SVG(p *scenario.Plot) ([]byte, error) {
	text, err := render(p, true)
	return []byte(text), err
}

// Inline draws a plot as an element of an HTML page, in the colour of the surrounding text.
func Inline(p *scenario.Plot) (string, error) {
	text, err := render(p, false)
	if err != nil {
		return "", err
	}
	_, text, _ = strings.Cut(text, "<svg ")
	// The page sets the size; the view box keeps the proportions.
	_, text, _ = strings.Cut(text, "viewBox=")
	text = strings.NewReplacer(
		"stroke:#DDDFE1", "stroke:currentColor;stroke-opacity:0.15",
		"#010203", "currentColor",
		"\n\txmlns=\"http://www.w3.org/2000/svg\"", "",
		"\n\txmlns:xlink=\"http://www.w3.org/1999/xlink\"", "",
	).Replace(text)
	return `<svg role="img" viewBox=` + text, nil
}

func render(p *scenario.Plot, paper bool) (string, error) {
	canvas := vgsvg.New(width, height)
	if err := paint(draw.New(canvas), p, paper); err != nil {
		return "", err
	}
	var out bytes.Buffer
	if _, err := canvas.WriteTo(&out); err != nil {
		return "", err
	}
	return fitText(strings.ReplaceAll(out.String(), "font-family:Liberation Sans", "font-family:"+fonts))
}

var textElement = regexp.MustCompile(`(?s)<text ([^>]*font-size:([0-9.]+)px[^>]*)>([^<]*)</text>`)

// fitText sets the width of each text to its width in the font of the layout, so that the
// text also fits in another font.
func fitText(svg string) (string, error) {
	var wrong error
	svg = textElement.ReplaceAllStringFunc(svg, func(element string) string {
		parts := textElement.FindStringSubmatch(element)
		size, err := strconv.ParseFloat(parts[2], 64)
		if err != nil {
			wrong = err
			return element
		}
		width := sans(vg.Length(size)).Width(html.UnescapeString(parts[3]))
		return fmt.Sprintf(`<text textLength="%.1f" lengthAdjust="spacingAndGlyphs" %s>%s</text>`, width.Points(), parts[1], parts[3])
	})
	return svg, wrong
}

// PNG draws a plot as a PNG with 150 dots per inch.
func PNG(p *scenario.Plot) ([]byte, error) {
	canvas := vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(150))
	if err := paint(draw.New(canvas), p, true); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	_, err := vgimg.PngCanvas{Canvas: canvas}.WriteTo(&out)
	return out.Bytes(), err
}

// paint draws a plot. With paper it adds title and margin, which a page otherwise provides.
func paint(c draw.Canvas, p *scenario.Plot, paper bool) error {
	if !paper {
		return drawOn(draw.Crop(c, 2, -2, 2, -2), p)
	}
	c.SetColor(color.White)
	c.Fill(c.Rectangle.Path())
	title := sans(textSize + 2)
	title.XAlign, title.YAlign = draw.XLeft, draw.YTop
	c = draw.Crop(c, 8, -8, 8, -8)
	c.FillText(title, vg.Point{X: c.Min.X, Y: c.Max.Y}, p.Title)
	return drawOn(draw.Crop(c, 0, 0, 0, -(textSize+12)), p)
}
