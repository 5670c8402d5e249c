package scenario

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Compare merges two runs of one scenario into one result: each table has the values of
// both runs and the change from a to b where the values differ, each plot has the lines of
// both runs. Equal tables are only named.
func Compare(a, b *Result) *Result {
	var differ []string
	out := &Result{Scenario: a.Scenario, Asks: a.Asks, Seed: a.Seed, Quick: a.Quick}
	for i, v := range a.Settings {
		if other := b.Settings[i].Value; other != v.Value {
			differ = append(differ, v.Name)
			v.Value = fmt.Sprintf("A: %s, B: %s", v.Value, other)
		}
		out.Settings = append(out.Settings, v)
	}
	equal := &Table{Name: "equal", Title: "the same on both sides", Columns: []Column{{Name: "table"}}}
	for _, t := range a.Tables {
		switch other := b.Table(t.Name); {
		case other == nil:
		case reflect.DeepEqual(t.Rows, other.Rows):
			equal.Add(t.Title)
		default:
			out.Tables = append(out.Tables, compareTables(t, other, differ))
		}
	}
	if len(equal.Rows) > 0 {
		out.Tables = append(out.Tables, equal)
	}
	for _, p := range a.Plots {
		if i := slices.IndexFunc(b.Plots, func(q *Plot) bool { return q.Name == p.Name && slices.Equal(q.Categories, p.Categories) }); i >= 0 {
			out.Plots = append(out.Plots, overlay(p, b.Plots[i]))
		}
	}
	for i := range a.Verdicts {
		va, vb := a.Verdicts[i], b.Verdicts[i]
		va.Side, vb.Side = "A", "B"
		out.Verdicts = append(out.Verdicts, va, vb)
	}
	return out
}

func overlay(a, b *Plot) *Plot {
	p := *a
	p.Series = nil
	p.Conclusion = "A: " + a.Conclusion + " B: " + b.Conclusion
	p.Events, p.References = bothMarks(a.Events, b.Events), bothMarks(a.References, b.References)
	for _, side := range []struct {
		name string
		plot *Plot
	}{{"A", a}, {"B", b}} {
		for _, s := range side.plot.Series {
			both := *s
			both.Name = side.name + ": " + s.Name
			p.Series = append(p.Series, &both)
		}
	}
	return &p
}

// bothMarks returns the lines of both sides, each with the name of its side if they differ.
func bothMarks(a, b []Mark) []Mark {
	if slices.Equal(a, b) {
		return a
	}
	var out []Mark
	for _, m := range a {
		out = append(out, Mark{m.At, "A: " + m.Label})
	}
	for _, m := range b {
		out = append(out, Mark{m.At, "B: " + m.Label})
	}
	return out
}

// compareTables joins the rows with equal keys. A key column that is constant and has the
// name of a setting that differs between the runs is not part of the key.
func compareTables(a, b *Table, differ []string) *Table {
	out := &Table{Name: a.Name, Title: a.Title}
	if a.Title != b.Title {
		out.Title = "A: " + a.Title + "; B: " + b.Title
	}
	var keys, values []int
	for i, c := range a.Columns {
		switch {
		case !c.Key:
			values = append(values, i)
		case slices.Contains(differ, c.Name) && constant(a, i) && constant(b, i):
		default:
			keys = append(keys, i)
			out.Columns = append(out.Columns, c)
			if i < a.Group {
				out.Group++
			}
		}
	}
	pairs := match(a, b, keys)
	// A column with equal values on both sides is shown once.
	same := make(map[int]bool)
	for _, i := range values {
		same[i] = !slices.ContainsFunc(pairs, func(p [2][]any) bool { return p[0] != nil && p[1] != nil && p[0][i] != p[1][i] })
		c := a.Columns[i]
		if same[i] {
			out.Columns = append(out.Columns, c)
			continue
		}
		inA, inB := c, c
		inA.Name, inB.Name = c.Name+", A", c.Name+", B"
		out.Columns = append(out.Columns, inA, inB)
		if numeric(a, i) {
			out.Columns = append(out.Columns, Column{Name: c.Name + ", change", Unit: "%", Digits: 1})
		}
	}
	for _, p := range pairs {
		either := p[0]
		if either == nil {
			either = p[1]
		}
		var cells []any
		for _, i := range keys {
			cells = append(cells, either[i])
		}
		for _, i := range values {
			if same[i] {
				cells = append(cells, either[i])
				continue
			}
			var va, vb any
			if p[0] != nil {
				va = p[0][i]
			}
			if p[1] != nil {
				vb = p[1][i]
			}
			cells = append(cells, va, vb)
			if numeric(a, i) {
				cells = append(cells, change(va, vb))
			}
		}
		out.Add(cells...)
	}
	return out
}

// match pairs the rows of two tables by their keys; rows with the same key are paired in
// their order. A row without a partner is paired with nil.
func match(a, b *Table, keys []int) [][2][]any {
	keyOf := func(row []any) string {
		var text []string
		for _, i := range keys {
			text = append(text, a.Columns[i].Text(row[i]))
		}
		return strings.Join(text, "\x00")
	}
	partners := map[string][]int{} // rows of b without a partner yet, by key
	for i, row := range b.Rows {
		partners[keyOf(row)] = append(partners[keyOf(row)], i)
	}
	taken := make([]bool, len(b.Rows))
	var out [][2][]any
	for _, row := range a.Rows {
		pair := [2][]any{row, nil}
		if waiting := partners[keyOf(row)]; len(waiting) > 0 {
			pair[1], taken[waiting[0]], partners[keyOf(row)] = b.Rows[waiting[0]], true, waiting[1:]
		}
		out = append(out, pair)
	}
	for i, row := range b.Rows {
		if !taken[i] {
			out = append(out, [2][]any{nil, row})
		}
	}
	return out
}

// constant reports whether a column has the same value in all rows.
func constant(t *Table, column int) bool {
	for _, row := range t.Rows {
		if row[column] != t.Rows[0][column] {
			return false
		}
	}
	return true
}

func numeric(t *Table, column int) bool {
	for _, row := range t.Rows {
		if _, ok := asFloat(row[column]); !ok && row[column] != nil {
			return false
		}
	}
	return len(t.Rows) > 0
}

func asFloat(cell any) (float64, bool) {
	switch v := cell.(type) {
	case int:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}

// change returns the change from a to b in percent of a, nil for values other than numbers
// and for a = 0.
func change(a, b any) any {
	va, okA := asFloat(a)
	vb, okB := asFloat(b)
	if !okA || !okB || va == 0 {
		return nil
	}
	return 100 * (vb - va) / va
}
