package report

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/ringway/ringway/sims/internal/scenario"
)

// Formats lists the formats of Write.
var Formats = []string{"table", "json", "csv"}

// Write writes results in one of the Formats.
func Write(w io.Writer, format string, results []*scenario.Result) error {
	switch format {
	case "table":
		return writeText(w, results)
	case "json":
		return writeJSON(w, results)
	case "csv":
		return writeCSV(w, results)
	}
	return fmt.Errorf("format %q: choose from %s", format, strings.Join(Formats, ", "))
}

func writeText(w io.Writer, results []*scenario.Result) error {
	for i, r := range results {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s: %s\n", r.Scenario, r.Asks)
		var settings []string
		for _, v := range r.Settings {
			settings = append(settings, v.Name+"="+v.Value)
		}
		fmt.Fprintf(w, "seed %d  %s\n", r.Seed, strings.Join(settings, "  "))
		for _, t := range r.Tables {
			fmt.Fprintf(w, "\n%s\n", t.Title)
			if err := textTable(w, t); err != nil {
				return err
			}
			if t.Note != "" {
				fmt.Fprintf(w, "→ %s\n", t.Note)
			}
		}
		fmt.Fprintln(w, "\nwhat is promised")
		if err := textTable(w, verdicts(r)); err != nil {
			return err
		}
	}
	return nil
}

func textTable(w io.Writer, t *scenario.Table) error {
	tabs := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	eachGroup(t, func(heading string, rows [][]any) {
		if heading != "" {
			fmt.Fprintf(tabs, "\n%s\n", heading)
		}
		var heads []string
		for _, c := range t.Columns[t.Group:] {
			heads = append(heads, c.Head())
		}
		fmt.Fprintf(tabs, "  %s\n", strings.Join(heads, "\t"))
		for _, row := range rows {
			fmt.Fprintf(tabs, "  %s\n", strings.Join(texts(t, row)[t.Group:], "\t"))
		}
	})
	return tabs.Flush()
}

// texts returns the cells of a row as printed.
func texts(t *scenario.Table, row []any) []string {
	out := make([]string, len(row))
	for i, cell := range row {
		out[i] = t.Columns[i].Text(cell)
	}
	return out
}

// eachGroup calls do with each run of rows that share the columns of the heading.
func eachGroup(t *scenario.Table, do func(heading string, rows [][]any)) {
	headingOf := func(row []any) string {
		var parts []string
		for i, text := range texts(t, row)[:t.Group] {
			parts = append(parts, t.Columns[i].Name+" = "+text)
		}
		return strings.Join(parts, ", ")
	}
	for from := 0; from < len(t.Rows); {
		to, heading := from+1, headingOf(t.Rows[from])
		for to < len(t.Rows) && headingOf(t.Rows[to]) == heading {
			to++
		}
		do(heading, t.Rows[from:to])
		from = to
	}
}

// verdicts returns a table of the promises and whether they hold.
func verdicts(r *scenario.Result) *scenario.Table {
	t := &scenario.Table{Columns: []scenario.Column{{Name: "promise"}, {Name: "bound"}, {Name: "value"}, {Name: "holds"}, {Name: "worst case"}}}
	for _, v := range r.Verdicts {
		name, holds := v.Name, "yes"
		if v.Side != "" {
			name = v.Side + ": " + name
		}
		if !v.Holds() {
			holds = "NO"
		}
		unit := ""
		if v.Unit != "" {
			unit = " " + v.Unit
		}
		if v.Skipped != "" {
			t.Add(name, "", "", "not checked", v.Skipped)
			continue
		}
		t.Add(name, string(v.Relation)+" "+scenario.Number(v.Bound)+unit, scenario.Number(v.Value)+unit, holds, v.Where)
	}
	return t
}

// writeCSV writes each table under a line with its name.
func writeCSV(w io.Writer, results []*scenario.Result) error {
	for i, r := range results {
		out := csv.NewWriter(w)
		block := func(name string, t *scenario.Table) error {
			if _, err := fmt.Fprintf(w, "# %s/%s\n", r.Scenario, name); err != nil {
				return err
			}
			var heads []string
			for _, c := range t.Columns {
				heads = append(heads, c.Head())
			}
			lines := [][]string{heads}
			for _, row := range t.Rows {
				lines = append(lines, texts(t, row))
			}
			return out.WriteAll(lines)
		}
		if i > 0 {
			fmt.Fprintln(w)
		}
		for _, t := range r.Tables {
			if err := block(t.Name, t); err != nil {
				return err
			}
			fmt.Fprintln(w)
		}
		if err := block("promises", verdicts(r)); err != nil {
			return err
		}
	}
	return nil
}

// The JSON form of results, with the numbers as printed in the tables.
type (
	jsonResult struct {
		Scenario string           `json:"scenario"`
		Asks     string           `json:"asks"`
		Seed     uint64           `json:"seed"`
		Quick    bool             `json:"quick"`
		Holds    bool             `json:"holds"`
		Settings []scenario.Value `json:"settings"`
		Promises []jsonVerdict    `json:"promises"`
		Tables   []jsonTable      `json:"tables"`
		Plots    []*scenario.Plot `json:"plots"`
	}
	jsonVerdict struct {
		scenario.Verdict
		Value jsonNumber `json:"value"`
		Bound jsonNumber `json:"bound"`
		Holds bool       `json:"holds"`
	}
	jsonTable struct {
		Name    string       `json:"name"`
		Title   string       `json:"title"`
		Note    string       `json:"note,omitempty"`
		Columns []jsonColumn `json:"columns"`
		Rows    [][]any      `json:"rows"`
	}
	jsonColumn struct {
		Name string `json:"name"`
		Unit string `json:"unit,omitempty"`
		Key  bool   `json:"key,omitempty"`
	}
	// jsonNumber is encoded as null if it is infinite or NaN.
	jsonNumber float64
)

func (n jsonNumber) MarshalJSON() ([]byte, error) {
	out, err := json.Marshal(float64(n))
	if err != nil { // infinite or NaN
		return []byte("null"), nil
	}
	return out, nil
}

func writeJSON(w io.Writer, results []*scenario.Result) error {
	all := struct {
		Results []jsonResult `json:"results"`
	}{Results: []jsonResult{}}
	for _, r := range results {
		j := jsonResult{
			Scenario: r.Scenario, Asks: r.Asks, Seed: r.Seed, Quick: r.Quick, Holds: len(r.Violations()) == 0,
			Settings: r.Settings, Plots: r.Plots,
		}
		for _, v := range r.Verdicts {
			j.Promises = append(j.Promises, jsonVerdict{v, jsonNumber(v.Value), jsonNumber(v.Bound), v.Holds()})
		}
		for _, t := range r.Tables {
			j.Tables = append(j.Tables, tableJSON(t))
		}
		all.Results = append(all.Results, j)
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	return e.Encode(all)
}

func tableJSON(t *scenario.Table) jsonTable {
	out := jsonTable{Name: t.Name, Title: t.Title, Note: t.Note, Rows: [][]any{}}
	for _, c := range t.Columns {
		out.Columns = append(out.Columns, jsonColumn{c.Name, c.Unit, c.Key})
	}
	for _, row := range t.Rows {
		cells := make([]any, len(row))
		for i, cell := range row {
			switch v := cell.(type) {
			case float64: // as printed
				cells[i] = json.RawMessage(t.Columns[i].Text(v))
				if !json.Valid(cells[i].(json.RawMessage)) {
					cells[i] = nil
				}
			case time.Duration:
				cells[i] = v.String()
			default:
				cells[i] = v
			}
		}
		out.Rows = append(out.Rows, cells)
	}
	return out
}
