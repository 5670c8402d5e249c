package scenario

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Table is a measurement as rows. Run.Table creates tables; Add adds rows.
type Table struct {
	Name  string // within the scenario: lower case, digits and dashes
	Title string // one line
	Note  string // the conclusion, one sentence; may be set after the rows
	// Group is how many of the first columns form a heading above the rows with the same
	// values in these columns.
	Group   int
	Columns []Column
	Rows    [][]any
	// Section is the section of a documentation page that shows the table, "" for none.
	Section string
}

// Column is a column of a table.
type Column struct {
	Name string
	Unit string
	// Digits is the number of decimal places of a float64.
	Digits int
	// Key columns identify a row; rows of two runs with equal keys are compared. A key
	// column with the name of a setting is ignored when the runs differ in that setting,
	// so that the rows are still compared.
	Key bool
}

// Head returns the name with the unit.
func (c Column) Head() string {
	if c.Unit == "" {
		return c.Name
	}
	return c.Name + " (" + c.Unit + ")"
}

// Add adds a row: string, int, float64, bool or time.Duration, one cell for each column;
// nil is an empty cell.
func (t *Table) Add(cells ...any) { t.Rows = append(t.Rows, cells) }

// Text returns a cell as printed.
func (c Column) Text(cell any) string {
	switch v := cell.(type) {
	case nil:
		return ""
	case float64:
		return strconv.FormatFloat(v, 'f', c.Digits, 64)
	}
	return fmt.Sprint(cell)
}

func (t *Table) validate() error {
	if !validName.MatchString(t.Name) || t.Title == "" || len(t.Columns) == 0 {
		return fmt.Errorf("table %q: it needs a name in lower case, a title and columns", t.Name)
	}
	for _, row := range t.Rows {
		if len(row) != len(t.Columns) {
			return fmt.Errorf("table %q: a row of %d cells under %d columns: %v", t.Name, len(row), len(t.Columns), row)
		}
		for i, cell := range row {
			switch cell.(type) {
			case nil, string, int, float64, bool, time.Duration:
			default:
				return fmt.Errorf("table %q, column %q: a cell of type %T", t.Name, t.Columns[i].Name, cell)
			}
		}
	}
	return nil
}

// Result holds the tables, plots and verdicts of one run.
type Result struct {
	Scenario string
	Asks     string
	Seed     uint64
	Quick    bool
	Settings []Value
	Tables   []*Table
	Plots    []*Plot
	Verdicts []Verdict
}

// Value is the value of a setting in a run.
type Value struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	Unit  string `json:"unit,omitempty"`
	Help  string `json:"help,omitempty"`
}

// Violations returns the promises that do not hold.
func (r *Result) Violations() []Verdict {
	var out []Verdict
	for _, v := range r.Verdicts {
		if !v.Holds() {
			out = append(out, v)
		}
	}
	return out
}

// Table returns the table with a name, or nil.
func (r *Result) Table(name string) *Table {
	for _, t := range r.Tables {
		if t.Name == name {
			return t
		}
	}
	return nil
}

func (r *Result) validate() error {
	var wrong []error
	names := map[string]bool{}
	for _, t := range r.Tables {
		wrong = append(wrong, t.validate())
		if names["table "+t.Name] {
			wrong = append(wrong, fmt.Errorf("two tables are called %q", t.Name))
		}
		names["table "+t.Name] = true
	}
	for _, p := range r.Plots {
		wrong = append(wrong, p.validate())
		if names["plot "+p.Name] {
			wrong = append(wrong, fmt.Errorf("two plots are called %q", p.Name))
		}
		names["plot "+p.Name] = true
	}
	for _, v := range r.Verdicts {
		if v.Checks == 0 && v.Skipped == "" {
			wrong = append(wrong, fmt.Errorf("the promise %q was neither checked nor skipped", v.Name))
		}
	}
	return errors.Join(wrong...)
}
