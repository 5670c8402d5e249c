package main

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"slices"
	"strconv"
	"time"
)

// colours can be distinguished with most kinds of colour blindness (Okabe and Ito, 2008).
var colours = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#5b6577", "#8c6bb1", "#a6761d", "#1b9e77", "#666666", "#e7298a"}

const style = `body{margin:0;padding:24px 28px;background:#f4f6f9;color:#17202e;font:14px/1.4 Inter,system-ui,sans-serif;font-variant-numeric:tabular-nums}
h1{font-size:20px;margin:0}p{margin:4px 0 18px;color:#55617a}
main{display:grid;grid-template-columns:repeat(24,1fr);gap:12px}
section{background:#fff;border:1px solid #d9dfe8;border-radius:10px;padding:12px 14px;min-width:0}
h2{font-size:13px;font-weight:600;margin:0 0 6px}
b{display:block;font-size:30px;font-weight:600;line-height:1.2}
svg{display:block;width:100%;font-size:11px}
ul{list-style:none;margin:6px 0 0;padding:0;display:flex;flex-wrap:wrap;gap:2px 14px;color:#55617a;font-size:12px}
i{display:inline-block;width:12px;height:3px;border-radius:2px;margin-right:6px;vertical-align:middle}
`

// drawPanels draws a page of panels in the grid of the dashboard.
func drawPanels(panels []*panel) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `<!DOCTYPE html><html lang="en"><meta charset="utf-8"><link rel="icon" href="data:,"><title>Panels</title><style>%s</style>
<h1>Panels of deploy/grafana/ringway.json</h1><p>Their queries, answered by Prometheus over %d seconds of a fleet of 3 relays and 9 workers in which one worker is killed. Drawn by <code>make screenshots</code>, not by Grafana.</p><main>`, style, int(watched.Seconds()))
	for _, p := range panels {
		fmt.Fprintf(&b, `<section style="grid-column:span %d"><h2>%s</h2>`, min(p.GridPos.W, 8), html.EscapeString(p.Title))
		if p.Type == "stat" {
			p.drawStat(&b)
		} else {
			p.drawChart(&b)
		}
		b.WriteString("</section>")
	}
	b.WriteString("</main></html>")
	return b.Bytes()
}

func (p *panel) unit() string { return p.FieldConfig.Defaults.Unit }

func (p *panel) drawStat(b *bytes.Buffer) {
	v, ok := p.newest()
	if !ok {
		b.WriteString("<b>–</b>")
		return
	}
	fmt.Fprintf(b, "<b>%s</b>", withUnit(v, p.unit()))
}

const (
	chartWidth, chartHeight = 420.0, 170.0
	chartLeft, chartBottom  = 52.0, 20.0
)

func (p *panel) drawChart(b *bytes.Buffer) {
	top, first, last := 0.0, math.Inf(1), math.Inf(-1)
	for _, l := range p.lines {
		for i, v := range l.Values {
			if !math.IsNaN(v) && !math.IsInf(v, 0) {
				top, first, last = max(top, v), min(first, l.Times[i]), max(last, l.Times[i])
			}
		}
	}
	width := chartWidth
	if math.IsInf(first, 1) {
		fmt.Fprintf(b, `<svg viewBox="0 0 %.0f %.0f"><text x="%.0f" y="%.0f" text-anchor="middle" fill="#66718a">No data: it has not happened</text></svg>`, width, chartHeight, width/2, chartHeight/2)
		return
	}
	first = last - watched.Seconds()
	if top == 0 {
		top = 0.95
	}
	step := nice(top / 4)
	top = math.Ceil(top*1.05/step) * step
	x := func(t float64) float64 { return chartLeft + (t-first)/(last-first)*(width-chartLeft-8) }
	y := func(v float64) float64 { return chartHeight - chartBottom - v/top*(chartHeight-chartBottom-8) }
	fmt.Fprintf(b, `<svg viewBox="0 0 %.0f %.0f">`, width, chartHeight)
	for v := 0.0; v <= top+step/2; v += step {
		fmt.Fprintf(b, `<path d="M%g %.1fH%.1f" stroke="#e3e8ef"/><text x="%g" y="%.1f" text-anchor="end" dominant-baseline="central" fill="#55617a">%s</text>`,
			chartLeft, y(v), width-8, chartLeft-8, y(v), withUnit(v, p.unit()))
	}
	const ticks = 3
	for i := range ticks + 1 {
		ago := watched * time.Duration(ticks-i) / ticks
		text := "-" + strconv.Itoa(int(ago.Seconds())) + " s"
		if ago == 0 {
			text = "now"
		}
		anchor := [...]string{"start", "middle", "middle", "end"}[i]
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s" fill="#55617a">%s</text>`, x(last-ago.Seconds()), chartHeight-4, anchor, text)
	}
	for i, l := range p.lines {
		fmt.Fprintf(b, `<path fill="none" stroke="%s" stroke-width="1.8" stroke-linejoin="round" d="`, colours[i%len(colours)])
		pen := "M"
		for k, v := range l.Values {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				pen = "M"
				continue
			}
			fmt.Fprintf(b, "%s%.1f %.1f", pen, x(l.Times[k]), y(v))
			pen = "L"
		}
		b.WriteString(`"/>`)
	}
	b.WriteString("</svg><ul>")
	quiet := 0
	for i, l := range p.lines {
		if !slices.ContainsFunc(l.Values, func(v float64) bool { return v > 0 }) {
			quiet++
			continue
		}
		fmt.Fprintf(b, `<li><i style="background:%s"></i>%s</li>`, colours[i%len(colours)], html.EscapeString(l.name))
	}
	if quiet > 0 {
		fmt.Fprintf(b, `<li>%d at zero</li>`, quiet)
	}
	b.WriteString("</ul>")
}

// nice rounds up to 1, 2 or 5 times a power of ten.
func nice(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if v <= m*power {
			return m * power
		}
	}
	return 10 * power
}

// withUnit formats a value with a Grafana unit.
func withUnit(v float64, unit string) string {
	short := func(v float64) string { return strconv.FormatFloat(v, 'g', 3, 64) }
	switch unit {
	case "s":
		switch {
		case v >= 2*86400:
			return short(v/86400) + " d"
		case v < 1 && v > 0:
			return short(v*1000) + " ms"
		}
		return short(v) + " s"
	case "percentunit":
		return short(v*100) + " %"
	case "reqps":
		return short(v) + "/s"
	}
	return short(v)
}
