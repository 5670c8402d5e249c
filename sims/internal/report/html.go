package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"

	"github.com/ringway/ringway/sims/internal/plot"
	"github.com/ringway/ringway/sims/internal/scenario"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// The data of the template.
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

// longTable is how many rows a table may have before the page folds the table.
const longTable = 40

// HTML writes one page with all results.
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
			// Package plot has escaped the text in the picture.
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

// UpdatePage writes the tables that name a section between the markers of that section,
// <!-- begin NAME --> and <!-- end NAME -->. A section that the page does not have is an
// error; results without any section are an error, too.
func UpdatePage(page string, results []*scenario.Result) (string, error) {
	texts := map[string]string{}
	var order []string
	for _, r := range results {
		for _, t := range r.Tables {
			if t.Section == "" {
				continue
			}
			if _, known := texts[t.Section]; !known {
				order = append(order, t.Section)
			}
			texts[t.Section] += markdown(t)
		}
	}
	if len(order) == 0 {
		return "", fmt.Errorf("no table names a section of a page: run a scenario whose tables do, such as affinity or churn")
	}
	for _, name := range order {
		var err error
		if page, err = ReplaceSection(page, name, texts[name]); err != nil {
			return "", err
		}
	}
	return page, nil
}

// ReplaceSection writes text between the markers of a section, see UpdatePage.
func ReplaceSection(page, name, text string) (string, error) {
	begin, end := marker("begin", name), marker("end", name)
	before, rest, found := strings.Cut(page, begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		return "", fmt.Errorf("the page has no section between the lines %q and %q: add them where the table belongs", begin, end)
	}
	return before + begin + "\n" + text + end + after, nil
}

func marker(kind, section string) string { return fmt.Sprintf("<!-- %s %s -->", kind, section) }

// markdown returns a table with its title or with the headings of its groups.
func markdown(t *scenario.Table) string {
	var out strings.Builder
	if t.Group == 0 {
		fmt.Fprintf(&out, "\n**%s**\n\n", t.Title)
	}
	eachGroup(t, func(heading string, rows [][]any) {
		if heading != "" {
			fmt.Fprintf(&out, "\n**%s**\n\n", heading)
		}
		var heads []string
		for _, c := range t.Columns[t.Group:] {
			heads = append(heads, c.Head())
		}
		fmt.Fprintf(&out, "| %s |\n%s|\n", strings.Join(heads, " | "), strings.Repeat("|---", len(heads)))
		for _, row := range rows {
			fmt.Fprintf(&out, "| %s |\n", strings.Join(texts(t, row)[t.Group:], " | "))
		}
	})
	return out.String()
}
