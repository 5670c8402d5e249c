package latency

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Report is all that is known after a run.
type Report struct {
	Subject    string     `json:"subject"`
	Properties []Property `json:"properties"`
	Rows       []Row      `json:"rows"`
}

// Formats that Write knows.
var Formats = []string{"table", "markdown", "json", "csv"}

// Write writes the report. The csv has the rows only.
func (r *Report) Write(w io.Writer, format string) error {
	switch format {
	case "json":
		e := json.NewEncoder(w)
		e.SetIndent("", " ")
		return e.Encode(r)
	case "csv":
		return r.writeCSV(w)
	case "markdown":
		return r.writeTables(w, func(cells []string) string { return "| " + strings.Join(cells, " | ") + " |\n" }, true)
	case "table":
		tabs := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		if err := r.writeTables(tabs, func(cells []string) string { return strings.Join(cells, "\t") + "\n" }, false); err != nil {
			return err
		}
		return tabs.Flush()
	}
	return fmt.Errorf("latency: format %q: choose one of %s", format, strings.Join(Formats, ", "))
}

func (r *Report) writeCSV(w io.Writer) error {
	out := csv.NewWriter(w)
	lines := [][]string{{
		"clients", "workers", "range", "rendezvous", "load", "scenario", "policy", "runs", "requests",
		"p50_ms", "p99_ms", "p999_ms", "p50_ratio", "p99_ratio", "p999_ratio",
		"error_share", "excess_errors", "victim_min", "victim_mean", "victim_max", "evictions",
	}}
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }
	for _, row := range r.Rows {
		lines = append(lines, []string{
			strconv.Itoa(row.Clients), strconv.Itoa(row.Workers), strconv.Itoa(row.Range), strconv.FormatBool(row.Rendezvous),
			number(row.Load), row.Scenario, row.Policy, strconv.Itoa(row.Runs), strconv.FormatInt(row.Requests, 10),
			number(row.P50), number(row.P99), number(row.P999), number(row.P50Ratio), number(row.P99Ratio), number(row.P999Ratio),
			number(row.ErrorShare), number(row.ExcessErrors), number(row.VictimMin), number(row.VictimMean), number(row.VictimMax),
			strconv.Itoa(row.Evictions),
		})
	}
	return out.WriteAll(lines)
}

// tables writes tables one after the other.
type tables struct {
	strings.Builder
	line func(cells []string) string
	rule bool // under the head
}

func (t *tables) title(format string, args ...any) { fmt.Fprintf(t, "\n"+format+"\n\n", args...) }

func (t *tables) row(cells ...string) { t.WriteString(t.line(cells)) }

func (t *tables) head(cells ...string) {
	t.row(cells...)
	if t.rule {
		t.WriteString(strings.Repeat("|---", len(cells)) + "|\n")
	}
}

func (r *Report) writeTables(w io.Writer, line func([]string) string, rule bool) error {
	t := &tables{line: line, rule: rule}
	r.summary(t)
	r.cells(t, "p99 as a multiple of the omniscient policy's", func(row *Row) bool { return row.Compared },
		func(row *Row) string { return fmt.Sprintf("%.2f", row.P99Ratio) })
	named := func(names ...string) func(*Row) bool {
		return func(row *Row) bool { return slices.Contains(names, row.Scenario) }
	}
	r.cells(t, "traffic of the worker that the scenario is about, over fair (in join: while it is cold)", named("failfast", "degrade", "join", "recovery"),
		func(row *Row) string { return fmt.Sprintf("%.3f", row.VictimMean) })
	r.cells(t, "special cells: p99 ratio, errors in % (evictions)", named("background", "recovery", "overload", "low rate"),
		func(row *Row) string {
			return fmt.Sprintf("%.2f, %.2f (%d)", row.P99Ratio, 100*row.ErrorShare, row.Evictions)
		})
	r.verdict(t)
	_, err := io.WriteString(w, strings.TrimPrefix(t.String(), "\n"))
	return err
}

// summary has the geometric means.
func (r *Report) summary(t *tables) {
	compared := slices.DeleteFunc(slices.Clone(r.Rows), func(row Row) bool { return !row.Compared })
	if len(compared) == 0 {
		return
	}
	t.title("geometric means over scenarios of p50 / p99 / p99.9, as multiples of the omniscient policy's")
	// A column is a topology at one load; "all" is the mean over everything.
	columnOf := func(row *Row) string { return fmt.Sprintf("%v, %.0f %%", row.Topology, 100*row.Load) }
	var columns, policies []string
	for i := range compared {
		if c := columnOf(&compared[i]); !slices.Contains(columns, c) {
			columns = append(columns, c)
		}
		if name := compared[i].Policy; !slices.Contains(policies, name) {
			policies = append(policies, name)
		}
	}
	t.head(slices.Concat([]string{"policy"}, columns, []string{"all"})...)
	for _, name := range policies {
		cells := []string{name}
		means := func(counts func(*Row) bool) string {
			return fmt.Sprintf("%.2f / %.2f / %.2f",
				geometricMean(compared, counts, func(row *Row) float64 { return row.P50Ratio }),
				geometricMean(compared, counts, func(row *Row) float64 { return row.P99Ratio }),
				geometricMean(compared, counts, func(row *Row) float64 { return row.P999Ratio }))
		}
		for _, c := range columns {
			cells = append(cells, means(func(row *Row) bool { return row.Policy == name && columnOf(row) == c }))
		}
		t.row(append(cells, means(func(row *Row) bool { return row.Policy == name }))...)
	}
}

// cells has a line per cell and a column per policy.
func (r *Report) cells(t *tables, title string, counts func(*Row) bool, value func(*Row) string) {
	var line []string
	begun := false
	for i := range r.Rows {
		row := &r.Rows[i]
		if !counts(row) {
			continue
		}
		if !begun {
			begun = true
			t.title("%s", title)
			head := []string{"cell"}
			for _, other := range r.Rows {
				if slices.Contains(head[1:], other.Policy) {
					break
				}
				head = append(head, other.Policy)
			}
			t.head(head...)
		}
		name := row.cell().String()
		if len(line) > 0 && line[0] != name {
			t.row(line...)
			line = nil
		}
		if len(line) == 0 {
			line = append(line, name)
		}
		line = append(line, value(row))
	}
	if begun {
		t.row(line...)
	}
}

func (r *Report) verdict(t *tables) {
	t.title("what is promised of %s", r.Subject)
	t.head("property", "bound", "value", "holds", "worst cell")
	for _, p := range r.Properties {
		relation, holds := "≤", "yes"
		if p.AtLeast {
			relation = "≥"
		}
		if !p.Holds() {
			holds = "NO"
		}
		t.row(p.Name, fmt.Sprintf("%s %.4g", relation, p.Bound), fmt.Sprintf("%.4g", p.Value), holds, p.Where)
	}
}
