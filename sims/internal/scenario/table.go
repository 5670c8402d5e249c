package scenario

import (
	"fmt"
	"strconv"
	"time"
)

// Table is something measured, as rows. Make it with Run.Table and fill it with Add.
type Table struct {
	Name  string // within the scenario: lower case, digits and dashes
	Title string // one line
	Note  string // what to see in it, one sentence; may be set after the rows
	// Group is how many of the first columns are shown as a heading over the rows that
	// share them.
	Group   int
	Columns []Column
	Rows    [][]any
	// Section is the section of a documentation page that shows the table, if one does.
	Section string
}

// Column is a column of a table.
type Column struct {
	Name string
	Unit string
	// Digits are the decimal places of a float64.
	Digits int
	// Key columns say what a row is of; rows of two runs with equal keys are compared.
	// Call a column like the setting that it shows, and runs that differ in that
	// setting are compared all the same.
	Key bool
}

// Head is the name with the unit.
func (c Column) Head() string {
	if c.Unit == "" {
		return c.Name
	}
	return c.Name + " (" + c.Unit + ")"
}

// Add adds a row: string, int, float64, bool or time.Duration, one cell for each column;
// nil is an empty cell.
func (t *Table) Add(cells ...any) { t.Rows = append(t.Rows, cells) }

// Text is a cell as it is printed.
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
