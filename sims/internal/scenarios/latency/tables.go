package latency

import (
	"fmt"
	"math"
	"slices"

	"github.com/ringway/ringway/sims/internal/queueing"
	"github.com/ringway/ringway/sims/internal/scenario"
)

func writeTables(r *scenario.Run, rows []row, judged string) {
	means(r, rows)
	t := pivot(r, rows, scenario.Table{Name: "p99", Title: "p99 of the answered requests ÷ the omniscient policy's"}, 2,
		func(row *row) bool { return row.compared }, func(row *row) float64 { return row.p99Ratio })
	note(t, rows, judged)
	pivot(r, rows, scenario.Table{Name: "p999", Title: "p99.9 of the answered requests ÷ the omniscient policy's"}, 2,
		func(row *row) bool { return row.compared }, func(row *row) float64 { return row.p999Ratio })
	pivot(r, rows, scenario.Table{
		Name: "traffic", Title: "traffic of the worker that the scenario is about ÷ fair",
		Note: "In failfast, degrade and join it should be low, and less than one in recovery only for a moment; join counts the time in which the worker is cold.",
	}, 3, func(row *row) bool { return len(row.scenario.Turns) > 0 || row.scenario.Join > 0 }, func(row *row) float64 { return row.victimMean })
	special(r, rows)
}

// means adds the table of geometric means over scenarios.
func means(r *scenario.Run, rows []row) {
	t := scenario.Table{
		Name: "means", Title: "geometric means over the scenarios, as multiples of the omniscient policy's", Group: 2,
		Columns: []scenario.Column{
			{Name: "topology", Key: true}, {Name: "load", Unit: "%", Key: true}, {Name: "policy", Key: true},
			{Name: "p50", Digits: 2}, {Name: "p99", Digits: 2}, {Name: "p99.9", Digits: 2}, {Name: "p99 of the worst cell", Digits: 2},
		},
	}
	names := policyNames(rows)
	add := func(place string, load any, counts func(*row) bool) {
		for _, name := range names {
			of := func(row *row) bool { return row.compared && row.policy == name && counts(row) }
			p99 := geometricMean(rows, of, func(row *row) float64 { return row.p99Ratio })
			if math.IsNaN(p99) {
				continue
			}
			worst := 0.0
			for i := range rows {
				if of(&rows[i]) {
					worst = max(worst, rows[i].p99Ratio)
				}
			}
			t.Add(place, load, name,
				geometricMean(rows, of, func(row *row) float64 { return row.p50Ratio }), p99,
				geometricMean(rows, of, func(row *row) float64 { return row.p999Ratio }), worst)
		}
	}
	add("all", nil, func(*row) bool { return true })
	for _, g := range groups(rows) {
		add(g.place, percent(g.load), g.has)
	}
	if len(t.Rows) > 0 {
		r.Table(t)
	}
}

// group is one topology at one load.
type group struct {
	place string
	load  float64
}

func (g group) has(r *row) bool { return r.place == g.place && r.load == g.load }

func groups(rows []row) (out []group) {
	for i := range rows {
		if g := (group{rows[i].place, rows[i].load}); rows[i].compared && !slices.Contains(out, g) {
			out = append(out, g)
		}
	}
	return out
}

func policyNames(rows []row) (out []string) {
	for i := range rows {
		if !slices.Contains(out, rows[i].policy) {
			out = append(out, rows[i].policy)
		}
	}
	return out
}

func percent(share float64) int { return int(math.Round(100 * share)) }

// pivot adds a table with a line for each cell and a column for each policy, unless no cell
// counts. The rows of a cell must be consecutive, in the order of the policies.
func pivot(r *scenario.Run, rows []row, t scenario.Table, digits int, counts func(*row) bool, value func(*row) float64) *scenario.Table {
	names := policyNames(rows)
	t.Group = 2
	t.Columns = []scenario.Column{{Name: "topology", Key: true}, {Name: "load", Unit: "%", Key: true}, {Name: "scenario", Key: true}}
	for _, name := range names {
		t.Columns = append(t.Columns, scenario.Column{Name: name, Digits: digits})
	}
	for i := 0; i < len(rows); i += len(names) {
		if c := &rows[i]; counts(c) {
			line := []any{c.place, percent(c.load), c.scenario.Name}
			for k := range names {
				line = append(line, value(&rows[i+k]))
			}
			t.Add(line...)
		}
	}
	if len(t.Rows) == 0 {
		return nil
	}
	return r.Table(t)
}

// note adds the random error of the judged policy's figures to a table.
func note(t *scenario.Table, rows []row, judged string) {
	var noise []float64
	for i := range rows {
		if row := &rows[i]; row.compared && row.policy == judged && !math.IsNaN(row.noise) {
			noise = append(noise, 100*row.noise)
		}
	}
	if t == nil || len(noise) == 0 {
		return
	}
	slices.Sort(noise)
	t.Note = fmt.Sprintf("Where a cell is several runs, the standard error of a figure of %s is %.1f %% in half of the cells and %.1f %% in the worst.",
		judged, noise[len(noise)/2], noise[len(noise)-1])
}

// special adds the table of the cells that the geometric means exclude.
func special(r *scenario.Run, rows []row) {
	t := scenario.Table{
		Name: "special", Title: "failures everywhere, recovery, and more load than capacity", Group: 3,
		Note: "background: 1 % of all requests fail at any worker. recovery: a worker is 10 times slower for 3 s, then well. overload: no policy can avoid the errors of the omniscient one.",
		Columns: []scenario.Column{
			{Name: "topology", Key: true}, {Name: "load", Unit: "%", Key: true}, {Name: "scenario", Key: true}, {Name: "policy", Key: true},
			{Name: "p99", Unit: "ms", Digits: 1}, {Name: "÷ omniscient", Digits: 2}, {Name: "errors", Unit: "%", Digits: 2}, {Name: "evictions"},
		},
	}
	for i := range rows {
		if row := &rows[i]; !row.compared {
			t.Add(row.place, percent(row.load), row.scenario.Name, row.policy, row.p99, row.p99Ratio, 100*row.errorShare, row.evictions)
		}
	}
	if len(t.Rows) > 0 {
		r.Table(t)
	}
}

// explain describes each scenario in words.
var explain = map[string]string{
	queueing.Equal.Name:    "equal workers",
	queueing.Hetero.Name:   "20 % of the workers 3 times slower",
	queueing.Bimodal.Name:  "20 % of the workers 3 times slower, one request in ten long",
	queueing.FailFast.Name: "one worker fails fast",
	queueing.Degrade.Name:  "one worker 10 times slower for 6 s",
	queueing.Join.Name:     "a cold worker joins",
}

// row holds the results of one policy in one cell.
type row struct {
	*cell
	policy   string
	requests int64

	// Latencies of successful requests in ms, and as multiples of the omniscient policy's.
	p50, p99, p999                float64
	p50Ratio, p99Ratio, p999Ratio float64
	p99Of                         []float64 // by run
	noise                         float64   // relative standard error of p99Ratio; NaN for one run
	curve                         []float64 // ms, by curveAt

	// errorShare is the share of requests that failed or were shed. excessErrors is errorShare
	// minus that of the omniscient policy, whose errors are unavoidable.
	errorShare, excessErrors float64

	// The traffic of the scenario's victim ÷ fair share, over all runs; 0 without a victim.
	victimMean, victimMax float64

	evictions int
}

// curveAt lists the points of the curves: 1 of n requests takes longer.
var curveAt = []float64{2, 3, 5, 10, 20, 30, 50, 100, 200, 300, 500, 1000, 2000, 3000, 5000, 10_000}

func milliseconds(r *queueing.Result, percentile float64) float64 {
	return float64(r.Percentile(percentile).Microseconds()) / 1000
}

func newRow(c *cell, policy string, r *queueing.Result) row {
	out := row{
		cell: c, policy: policy, requests: r.Requests,
		p50: milliseconds(r, 50), p99: milliseconds(r, 99), p999: milliseconds(r, 99.9),
		errorShare: r.ErrorShare(), evictions: r.Evictions,
	}
	for _, n := range curveAt {
		// Fewer than 10 requests beyond a point give a random value.
		if served := float64(r.Requests) * (1 - out.errorShare); served >= 10*n {
			out.curve = append(out.curve, milliseconds(r, 100*(1-1/n)))
		}
	}
	if shares := r.VictimShares; len(shares) > 0 {
		out.victimMax = slices.Max(shares)
		for _, s := range shares {
			out.victimMean += s / float64(len(shares))
		}
	}
	return out
}

func (r *row) compare(reference *row) {
	r.p50Ratio, r.p99Ratio, r.p999Ratio = r.p50/reference.p50, r.p99/reference.p99, r.p999/reference.p999
	r.excessErrors = r.errorShare - reference.errorShare
	ratios := make([]float64, len(r.p99Of))
	for i := range ratios {
		ratios[i] = r.p99Of[i] / reference.p99Of[i]
	}
	r.noise = standardError(ratios)
}

// standardError returns the standard error of the mean, relative to the mean.
func standardError(values []float64) float64 {
	n := float64(len(values))
	mean, square := 0.0, 0.0
	for _, v := range values {
		mean += v / n
	}
	for _, v := range values {
		square += (v - mean) * (v - mean)
	}
	return math.Sqrt(square/(n-1)/n) / mean // NaN for one value
}

// geometricMean returns the geometric mean of the values of the rows that count; NaN without
// such rows.
func geometricMean(rows []row, counts func(*row) bool, value func(*row) float64) float64 {
	sum, n := 0.0, 0
	for i := range rows {
		if counts(&rows[i]) {
			sum += math.Log(value(&rows[i]))
			n++
		}
	}
	return math.Exp(sum / float64(n))
}
