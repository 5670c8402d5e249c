package latency

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/ringway/ringway/sims/internal/policy"
	"github.com/ringway/ringway/sims/internal/queueing"
	"github.com/ringway/ringway/sims/internal/scenario"
)

// curves draws the means, and the whole latency curve of each compared scenario.
func curves(r *scenario.Run, rows []row, judged string) {
	all := groups(rows)
	if len(all) == 0 {
		return
	}
	meansPlot(r, rows, all, judged)
	// Only one topology and one load are drawn: preferably the middle topology, which is most
	// like a real fleet.
	at := slices.MinFunc(all, func(a, b group) int {
		other := func(g group) bool { return g.place != topologies[1].name }
		if other(a) != other(b) {
			if other(a) {
				return 1
			}
			return -1
		}
		want := r.Float("curves-load")
		return cmp.Compare(math.Abs(a.load-want), math.Abs(b.load-want))
	})
	for _, s := range queueing.Compared() {
		of := slices.DeleteFunc(slices.Clone(rows), func(row row) bool { return !at.has(&row) || row.scenario.Name != s.Name })
		if len(of) > 0 {
			curve(r, of, judged)
		}
	}
}

func meansPlot(r *scenario.Run, rows []row, all []group, judged string) {
	p := r.Plot(scenario.Plot{
		Name: "means", Title: "p99 ÷ the omniscient policy's, geometric mean over the scenarios",
		X: scenario.Axis{Label: "topology and load"}, Y: scenario.Axis{Label: "p99 ÷ the omniscient policy's", Unit: "1", Log: true},
	})
	p.Reference(1, policy.Omniscient.Name)
	for _, g := range all {
		p.Categories = append(p.Categories, fmt.Sprintf("%s, %d %%", g.place, percent(g.load)))
	}
	p99 := func(name string, has func(*row) bool) float64 {
		return geometricMean(rows, func(row *row) bool { return row.compared && row.policy == name && has(row) }, func(row *row) float64 { return row.p99Ratio })
	}
	best, lowest := "", math.Inf(1)
	for _, name := range policyNames(rows) {
		if name == policy.Omniscient.Name {
			continue
		}
		var values []float64
		for _, g := range all {
			values = append(values, p99(name, g.has))
		}
		p.Bars(name, values)
		if mean := p99(name, func(*row) bool { return true }); name != judged && mean < lowest {
			best, lowest = name, mean
		}
	}
	p.Conclusion = fmt.Sprintf("Over everything, the p99 of %s is %.2f times that of the omniscient policy", judged, p99(judged, func(*row) bool { return true }))
	if best != "" {
		p.Conclusion += fmt.Sprintf("; of the others %s is nearest with %.2f", best, lowest)
	}
	p.Conclusion += "."
}

// curve draws the latency curves of one cell.
func curve(r *scenario.Run, rows []row, judged string) {
	c := rows[0].cell
	p := scenario.Plot{
		Name:  "curve-" + c.scenario.Name,
		Title: fmt.Sprintf("Latency: %s, %s, %d %% load", explain[c.scenario.Name], c.place, percent(c.load)),
		X:     scenario.Axis{Label: "one request in this many takes longer", Unit: "requests", Log: true},
		Y:     scenario.Axis{Label: "latency", Unit: "ms", Log: true},
	}
	var mine, least *row
	for i := range rows {
		row := &rows[i]
		if row.policy == judged {
			mine = row
		} else if row.policy != policy.Omniscient.Name && (least == nil || row.p99 < least.p99) {
			least = row
		}
		if len(row.curve) == 0 {
			continue
		}
		line := p.Line(row.policy)
		if row.policy == policy.Omniscient.Name {
			line.Style = scenario.Dashed
		}
		for k, ms := range row.curve {
			line.At(curveAt[k], max(ms, 0.001))
		}
	}
	if len(p.Series) == 0 {
		return
	}
	p.Conclusion = fmt.Sprintf("One request in a hundred takes longer than %.0f ms with %s", mine.p99, judged)
	if least != nil {
		p.Conclusion += fmt.Sprintf(", than %.0f ms with %s, the best of the others", least.p99, least.policy)
	}
	p.Conclusion += fmt.Sprintf(", and than %.0f ms with one that knows everything.", mine.p99/mine.p99Ratio)
	r.Plot(p)
}

// sparse has many clients and large ranges: each client sends a worker one request in three
// seconds, so its statistics are old.
var sparse = queueing.Topology{Clients: 300, Workers: 60, Range: 60}

const (
	sparseLoad = 0.8
	wholeRange = "ringway, whole range"
	noReports  = "ringway, no load reports"
)

// lowRate compares the effective range with the whole range.
func lowRate(r *scenario.Run, measured queueing.Measured) error {
	whole, narrow := configOf(r), configOf(r)
	whole.EndpointRate, narrow.EndpointRate = 0, r.Float("endpoint-rate")
	all := []queueing.Policy{policy.Omniscient, policy.Ringway(ours, narrow), policy.Ringway(wholeRange, whole), policy.Unreported(noReports, policy.Ringway(ours, narrow)), policy.Unreported(noReports+", whole range", policy.Ringway(ours, whole)), policy.PeakEWMA, policy.Prequal(0.6), policy.RoundRobin}
	const runs = 2
	results := make([]queueing.Result, len(all)*runs)
	if err := r.Parallel(len(results), func(i int) (err error) {
		results[i], err = queueing.Run(queueing.Config{
			Topology: sparse, Scenario: queueing.LowRate, Policy: all[i/runs], Load: sparseLoad, Measured: measured,
			Seed: (r.Seed()-1)*1000 + uint64(i%runs) + 1,
		})
		return err
	}); err != nil {
		return err
	}
	t := r.Table(scenario.Table{
		Name: "low-rate", Title: fmt.Sprintf("little traffic: %d relays that know all of %d workers, %.0f %% load, a request for each pair in 3 s", sparse.Clients, sparse.Workers, 100*sparseLoad),
		Note: "With little traffic a relay uses only as many workers of its range as get endpoint-rate requests a second each.",
		Columns: []scenario.Column{
			{Name: "policy", Key: true}, {Name: "p50", Unit: "ms", Digits: 1}, {Name: "p99", Unit: "ms", Digits: 1}, {Name: "p99.9", Unit: "ms", Digits: 1}, {Name: "errors", Unit: "%", Digits: 2},
		},
	})
	p99 := map[string]float64{}
	for i, p := range all {
		var sum queueing.Result
		for k := range runs {
			sum.Add(results[runs*i+k])
		}
		p99[p.Name] = milliseconds(&sum, 99)
		t.Add(p.Name, milliseconds(&sum, 50), p99[p.Name], milliseconds(&sum, 99.9), 100*sum.ErrorShare())
	}
	r.Check(narrows, p99[ours]/p99[wholeRange], fmt.Sprintf("%.0f ms, with the whole range %.0f ms", p99[ours], p99[wholeRange]))
	return nil
}
