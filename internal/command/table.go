package command

import (
	"fmt"
	"io"
	"reflect"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/ringway/ringway/internal/daemon"
)

// table aligns columns. Unlike text/tabwriter it knows which columns are numbers, and
// that colours take no room.
type table struct {
	colour bool
	right  []bool
	rows   [][]cell
}

// cell is a text, and how it looks where colours are allowed.
type cell struct {
	text  string
	style style
}

type style string

// The styles: a state that is as it should be, on its way, or wrong.
const (
	plain style = ""
	good  style = "\x1b[32m"
	fair  style = "\x1b[33m"
	bad   style = "\x1b[31m"
	bold  style = "\x1b[1m"
)

const reset = "\x1b[0m"

// newTable has the named columns; those whose name begins with > hold numbers.
func newTable(colour bool, columns ...string) *table {
	t := &table{colour: colour, right: make([]bool, len(columns))}
	head := make([]cell, len(columns))
	for i, name := range columns {
		name, t.right[i] = strings.CutPrefix(name, ">")
		head[i] = cell{name, bold}
	}
	t.rows = append(t.rows, head)
	return t
}

// add adds a row: texts and cells. What is empty is shown as a dash, so that columns
// can be counted.
func (t *table) add(values ...any) {
	row := make([]cell, len(values))
	for i, v := range values {
		switch v := v.(type) {
		case cell:
			row[i] = v
		case string:
			row[i].text = v
		}
		if row[i].text = daemon.Printable(row[i].text); row[i].text == "" {
			row[i].text = "-"
		}
	}
	t.rows = append(t.rows, row)
}

func (t *table) writeTo(out io.Writer) error {
	width := make([]int, len(t.right))
	for _, row := range t.rows {
		for i, c := range row {
			width[i] = max(width[i], utf8.RuneCountInString(c.text))
		}
	}
	var b strings.Builder
	for _, row := range t.rows {
		for i, c := range row {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(c.text))
			if t.right[i] {
				b.WriteString(pad)
			}
			if t.colour && c.style != plain {
				b.WriteString(string(c.style) + c.text + reset)
			} else {
				b.WriteString(c.text)
			}
			if i == len(row)-1 {
				break
			}
			if !t.right[i] {
				b.WriteString(pad)
			}
			b.WriteString("  ")
		}
		b.WriteString("\n")
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// rows aligns lines of text whose parts are separated by tabs.
type rows struct{ *tabwriter.Writer }

func newRows(out io.Writer) rows { return rows{tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)} }

// add adds a line, its values made printable.
func (r rows) add(format string, values ...any) {
	fmt.Fprintf(r, format+"\n", printable(values...)...)
}

// printable are values for a text on a terminal: those that are strings are often what
// other members say of themselves.
func printable(values ...any) []any {
	out := make([]any, len(values))
	for i, v := range values {
		out[i] = v
		if text := reflect.ValueOf(v); text.Kind() == reflect.String {
			out[i] = daemon.Printable(text.String())
		}
	}
	return out
}
