package command

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
	"golang.org/x/term"

	"github.com/ringway/ringway/internal/process"
)

// The forms of output.
const (
	formTable = "table"
	formJSON  = "json"
	formYAML  = "yaml"
	formWide  = "wide"
)

// forms lists them all. A table is for people and may change; scripts read JSON.
var forms = []string{formTable, formJSON, formYAML, formWide}

// form is the output form of a command.
type form struct {
	outputs []string
	output  string
}

// bind adds --output with the given forms, with all forms if outputs is empty.
func (f *form) bind(flags *pflag.FlagSet, outputs ...string) {
	if len(outputs) == 0 {
		outputs = forms
	}
	f.outputs = outputs
	last := len(outputs) - 1
	flags.StringVarP(&f.output, "output", "o", outputs[0], "form of the output: "+strings.Join(outputs[:last], ", ")+" or "+outputs[last])
}

func (f *form) check() error {
	if !slices.Contains(f.outputs, f.output) {
		return fmt.Errorf("--output %q: allowed are %s", f.output, strings.Join(f.outputs, ", "))
	}
	return nil
}

// wide reports whether a table has all columns.
func (f *form) wide() bool { return f.output == formWide }

// show writes a JSON document in the selected form.
func (f *form) show(out io.Writer, text []byte, people func(*page)) error {
	return f.write(out, text, coloured(out), people)
}

func (f *form) write(out io.Writer, text []byte, colour bool, people func(*page)) error {
	switch f.output {
	case formJSON:
		_, err := out.Write(process.PrintableJSON(text, process.JSONEscape))
		return err
	case formYAML:
		return writeYAML(out, text)
	}
	var b bytes.Buffer
	p := &page{tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0), f.wide(), colour}
	people(p)
	_ = p.Flush() // to b, which takes everything
	_, err := out.Write(b.Bytes())
	return err
}

// showValue is show for a Go value.
func (f *form) showValue(out io.Writer, v any, people func(*page)) error {
	text, err := document(v)
	if err != nil {
		return err
	}
	return f.show(out, text, people)
}

// document encodes v as the admin API would.
func document(v any) ([]byte, error) {
	text, err := json.MarshalIndent(v, "", "  ")
	return append(text, '\n'), err
}

// writeYAML writes JSON as YAML and keeps the order of the keys.
func writeYAML(w io.Writer, text []byte) error {
	var doc yaml.Node // JSON is YAML, in flow style
	if err := yaml.Unmarshal(process.PrintableJSON(text, yamlEscape), &doc); err != nil {
		return fmt.Errorf("write the answer as YAML: %w", err)
	}
	plainStyle(&doc)
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := errors.Join(enc.Encode(&doc), enc.Close()); err != nil {
		return err
	}
	_, err := w.Write(process.PrintableJSON(b.Bytes(), yamlEscape))
	return err
}

// yamlEscape is how YAML escapes a character above U+FFFF. Its other escapes are those of JSON.
func yamlEscape(r rune) string { return fmt.Sprintf(`\U%08x`, r) }

// plainStyle removes the style of JSON. The encoder keeps the quotes of a text that would
// otherwise be read as another type. A text that is not printable keeps them, because only
// such texts may have escapes.
func plainStyle(n *yaml.Node) {
	if n.Style = 0; n.Kind == yaml.ScalarNode && process.Printable(n.Value) != n.Value {
		n.Style = yaml.DoubleQuotedStyle
	}
	for _, child := range n.Content {
		plainStyle(child)
	}
}

// terminal returns the terminal that w writes to, false if w is no terminal.
func terminal(w io.Writer) (*os.File, bool) {
	file, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return nil, false
	}
	return file, true
}

// coloured reports whether output to w is coloured: w is a terminal and the environment
// does not have NO_COLOR (no-color.org).
func coloured(w io.Writer) bool {
	_, ok := terminal(w)
	return ok && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// page is what a command shows people: lines and tables, one below the other. Writing to it cannot
// fail, and it makes texts printable, because they often come from other members.
type page struct {
	*tabwriter.Writer // aligns what tabs separate in lines that follow each other
	wide, colour      bool
}

// row adds a line with a name before its text.
func (p *page) row(name, format string, values ...any) { p.line(name+"\t"+format, values...) }

// some adds a row unless the text is empty.
func (p *page) some(name, text string) {
	if text != "" {
		p.row(name, "%s", text)
	}
}

// line adds a line.
func (p *page) line(format string, values ...any) {
	for i, v := range values {
		if text := reflect.ValueOf(v); text.Kind() == reflect.String {
			values[i] = process.Printable(text.String())
		}
	}
	fmt.Fprintf(p, format+"\n", values...)
}

// table aligns columns. Unlike text/tabwriter it right-aligns columns of numbers and does
// not count colour codes as width.
type table struct {
	page          *page
	hidden, right []bool // columns
	rows          [][]cell
}

// cell is a text with its style on a coloured terminal.
type cell struct {
	text  string
	style style
}

type style string

// The styles: a good state, a transitional one and a bad one.
const (
	plain     style = ""
	styleGood style = "\x1b[32m"
	styleFair style = "\x1b[33m"
	styleBad  style = "\x1b[31m"
	bold      style = "\x1b[1m"
)

const reset = "\x1b[0m"

// table begins a table with the given columns, which write adds to the page. The prefix > marks a
// column of numbers, and + one that only wide output has.
func (p *page) table(columns ...string) *table {
	t := &table{page: p}
	head := make([]any, len(columns))
	for i, name := range columns {
		name, wide := strings.CutPrefix(name, "+")
		name, right := strings.CutPrefix(name, ">")
		t.hidden, t.right = append(t.hidden, wide && !p.wide), append(t.right, right)
		head[i] = cell{name, bold}
	}
	t.add(head...)
	return t
}

// add adds a row of texts and cells, one for each column. Empty values are shown as a dash, so that
// scripts can count the columns.
func (t *table) add(values ...any) {
	row := make([]cell, len(values))
	for i, v := range values {
		switch v := v.(type) {
		case cell:
			row[i] = v
		case string:
			row[i].text = v
		}
		if row[i].text = process.Printable(row[i].text); row[i].text == "" {
			row[i].text = "-"
		}
	}
	t.rows = append(t.rows, row)
}

// write adds the table to its page, and below it lines about rows of it.
func (t *table) write(notes ...string) {
	width := make([]int, len(t.right))
	for _, row := range t.rows {
		for i, c := range row {
			width[i] = max(width[i], utf8.RuneCountInString(c.text))
		}
	}
	last := len(width) - 1
	for t.hidden[last] {
		last--
	}
	for _, row := range t.rows {
		for i, c := range row {
			if t.hidden[i] {
				continue
			}
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(c.text))
			if t.page.colour && c.style != plain {
				c.text = string(c.style) + c.text + reset
			}
			switch {
			case t.right[i]:
				c.text = pad + c.text
			case i < last:
				c.text += pad
			}
			if i < last {
				c.text += "  "
			}
			fmt.Fprint(t.page, c.text)
		}
		fmt.Fprintln(t.page)
	}
	for _, note := range notes {
		t.page.line("%s", note)
	}
}

// count formats a number for people: 1234567 is 1.2M. Numbers below ten thousand are exact.
func count(n uint64) string {
	const thousand = 1000
	if n < 10*thousand {
		return strconv.FormatUint(n, 10)
	}
	v := float64(n)
	for _, unit := range "kMGT" {
		if v /= thousand; v < 999.95 || unit == 'T' {
			return strconv.FormatFloat(v, 'f', 1, 64) + string(unit)
		}
	}
	return ""
}

// age formats a duration in its two largest units: 3d4h, 5m12s, 4s.
func age(d time.Duration) string {
	d = max(d, 0).Truncate(time.Second)
	units := []struct {
		size time.Duration
		name string
	}{{day, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}}
	for i, u := range units {
		n := d / u.size
		if n == 0 && u.size > time.Second {
			continue
		}
		text := fmt.Sprintf("%d%s", n, u.name)
		if i+1 < len(units) {
			if rest := d % u.size / units[i+1].size; rest > 0 {
				text += fmt.Sprintf("%d%s", rest, units[i+1].name)
			}
		}
		return text
	}
	return "0s"
}

// latency formats milliseconds with the significant digits only.
func latency(ms float64) string {
	switch {
	case ms <= 0:
		return ""
	case ms < 1:
		return fmt.Sprintf("%.0fµs", ms*1000)
	case ms < 100:
		return fmt.Sprintf("%.1fms", ms)
	case ms < 10_000:
		return fmt.Sprintf("%.0fms", ms)
	}
	return fmt.Sprintf("%.1fs", ms/1000)
}

// percent formats a share from 0 to 1.
func percent(share float64) string { return fmt.Sprintf("%.1f%%", 100*share) }
