package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"

	"github.com/ringway/ringway/sims/internal/plot"
	"github.com/ringway/ringway/sims/internal/scenario"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// What the template needs.
type (
	htmlPage struct {
		Seed    uint64
		Quick   bool
		Results []htmlResult
		Broken  []string
		Checked int
	}
	htmlResult struct {
		*scenario.Result
		Holds    bool
		Verdicts htmlTable
		Plots    []htmlPlot
		Tables   []htmlTable
	}
	htmlPlot struct {
		*scenario.Plot
		SVG template.HTML
	}
	htmlTable struct {
		*scenario.Table
		Groups []htmlGroup
		Long   bool
	}
	htmlGroup struct {
		Heading string
		Heads   []string
		Rows    [][]htmlCell
	}
	htmlCell struct {
		Text   string
		Number bool
		Bad    bool
	}
)

// longTable is how many rows a table may have before it is folded.
const longTable = 40

// HTML writes one page with everything in it.
func HTML(w io.Writer, results []*scenario.Result) error {
	page := htmlPage{}
	for _, r := range results {
		page.Seed, page.Quick = r.Seed, page.Quick || r.Quick
		out := htmlResult{Result: r, Holds: len(r.Violations()) == 0, Verdicts: tableHTML(verdicts(r))}
		for _, v := range r.Verdicts {
			page.Checked += min(1, v.Checks)
		}
		for _, v := range r.Violations() {
			page.Broken = append(page.Broken, r.Scenario+": "+v.String())
		}
		for _, p := range r.Plots {
			svg, err := plot.Inline(p)
			if err != nil {
				return fmt.Errorf("scenario %s: %w", r.Scenario, err)
			}
			// The text in it is escaped by the package that drew it.
			out.Plots = append(out.Plots, htmlPlot{p, template.HTML(svg)})
		}
		for _, t := range r.Tables {
			out.Tables = append(out.Tables, tableHTML(t))
		}
		page.Results = append(page.Results, out)
	}
	return pageTemplate.Execute(w, page)
}

func tableHTML(t *scenario.Table) htmlTable {
	out := htmlTable{Table: t, Long: len(t.Rows) > longTable}
	eachGroup(t, func(heading string, rows [][]any) {
		g := htmlGroup{Heading: heading}
		for _, c := range t.Columns[t.Group:] {
			g.Heads = append(g.Heads, c.Head())
		}
		for _, row := range rows {
			var cells []htmlCell
			for i, text := range texts(t, row)[t.Group:] {
				var number bool
				switch row[i+t.Group].(type) {
				case int, float64:
					number = true
				}
				cells = append(cells, htmlCell{text, number, text == "NO"})
			}
			g.Rows = append(g.Rows, cells)
		}
		out.Groups = append(out.Groups, g)
	})
	return out
}
