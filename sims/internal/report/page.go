package report

import (
	"fmt"
	"strings"

	"github.com/ringway/ringway/sims/internal/scenario"
)

// UpdatePage puts the tables that name a section between the markers of that section,
// <!-- begin NAME --> and <!-- end NAME -->. A section that the page does not have is an
// error, and so are results without any section.
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
		begin, end := marker("begin", name), marker("end", name)
		before, rest, found := strings.Cut(page, begin)
		_, after, ended := strings.Cut(rest, end)
		if !found || !ended {
			return "", fmt.Errorf("the page has no section between the lines %q and %q: add them where the table belongs", begin, end)
		}
		page = before + begin + "\n" + texts[name] + end + after
	}
	return page, nil
}

func marker(kind, section string) string { return fmt.Sprintf("<!-- %s %s -->", kind, section) }

// markdown is a table with its title, or the headings of its groups.
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
