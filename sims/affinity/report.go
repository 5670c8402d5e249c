package main

import (
	"fmt"
	"strings"
)

// section is one kind of measurement: its tables, and what must hold of them.
type section struct {
	name string // of its markers in a page
	run  func(*report, []size) error
}

var sections = []section{
	{"balance", balance},
	{"churn", churn},
	{"peering", gentle},
}

// report collects the text of a section and what does not hold.
type report struct {
	strings.Builder
	violations []string
}

func (r *report) row(cells ...string) {
	fmt.Fprintf(r, "| %s |\n", strings.Join(cells, " | "))
}

// head starts a table.
func (r *report) head(cells ...string) {
	r.row(cells...)
	r.WriteString(strings.Repeat("|---", len(cells)) + "|\n")
}

// require notes a violation unless ok.
func (r *report) require(ok bool, format string, args ...any) {
	if !ok {
		r.violations = append(r.violations, fmt.Sprintf(format, args...))
	}
}

// replaceSection puts text between the markers of a section.
func replaceSection(page, name, text string) (string, error) {
	begin, end := marker("begin", name), marker("end", name)
	before, rest, found := strings.Cut(page, begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		return "", fmt.Errorf("the page has no section between the lines %q and %q: add them where the table belongs", begin, end)
	}
	return before + begin + "\n" + text + end + after, nil
}

func marker(kind, section string) string { return fmt.Sprintf("<!-- %s %s -->", kind, section) }
