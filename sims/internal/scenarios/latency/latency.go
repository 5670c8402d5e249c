package latency

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ringway/ringway/selection"
	"github.com/ringway/ringway/sims/internal/policy"
	"github.com/ringway/ringway/sims/internal/queueing"
	"github.com/ringway/ringway/sims/internal/scenario"
	"github.com/ringway/ringway/sims/internal/trace"
)

// The promises, by name.
const (
	typical    = "geometric mean of p50 ÷ omniscient"
	nearBest   = "geometric mean of p99 ÷ omniscient"
	tail       = "geometric mean of p99.9 ÷ omniscient"
	notWorse   = "p99 ÷ peak-ewma, the worst cell"
	tailToo    = "p99.9 ÷ peak-ewma, the worst cell"
	failFast   = "share of a worker that fails fast ÷ fair"
	background = "evictions while 1 % of all requests fail"
	recovered  = "share of a worker in the 10 s after it recovers ÷ fair"
	narrows    = "p99 at a low rate ÷ that with the whole range"
	overloaded = "errors at 110 % load, beyond the unavoidable"
	through    = "served ÷ possible on a ramp through overload, the worst step"

	evenRendezvous = "p99 with unequal relays by rendezvous ÷ that with equal ones"
	evenProjection = "p99 with unequal relays by projection ÷ that with equal ones"
	evenZones      = "p99 with a zone at 1.5 times the traffic ÷ that without zones"
)

// ours is the name of the policy of the relays.
const ours = "ringway"

// New returns the scenario.
func New() scenario.Scenario {
	normal := selection.DefaultConfig()
	var kinds []string
	for _, s := range scenarios() {
		kinds = append(kinds, s.Name)
	}
	var places []string
	for _, t := range topologies {
		places = append(places, t.name)
	}
	var names []string
	for _, p := range policies(normal) {
		names = append(names, p.Name)
	}
	return scenario.Scenario{
		Name: "latency",
		Asks: "How long do requests wait with our selection, compared with others and with one that knows everything?",
		Settings: []scenario.Setting{
			{Name: "topologies", Help: "clients x workers; ranges of 20 and 30 workers", Default: places, Quick: places[:1], OneOf: places},
			{Name: "loads", Help: "arrivals ÷ capacity", Default: []float64{0.5, 0.7, 0.9}, Quick: []float64{0.5, 0.9}, Min: 0.05, Max: 1.05},
			{Name: "scenarios", Help: "faults of the workers", Default: kinds, OneOf: kinds},
			{Name: "policies", Help: "the policies that are compared with omniscient and the one that is judged", Default: names, OneOf: names},
			{Name: "judged", Help: "the policy that must keep the promises", Default: ours, OneOf: names},
			{Name: "ranges", Help: "the workers that a client knows: ranges as relays have them, or the workers that hash best with it", Default: "balanced", OneOf: []string{"balanced", "rendezvous"}},
			{Name: "seeds", Help: "runs of each cell, 0 for what makes the figures steady", Unit: "runs", Default: 0, Quick: 3, Min: 0, Max: 100},
			{Name: "curves-load", Help: "the load of the curves; the nearest one that is run", Default: 0.9, Min: 0.05, Max: 1.05},
			{Name: "redraws", Help: "pairs that ours may draw again", Default: normal.Redraws, Min: 0, Max: 8},
			{Name: "alpha", Help: "largest weight of a new latency sample in ours", Default: normal.Alpha, Min: 0.01, Max: 1.0},
			{Name: "slow-start", Help: "how long ours holds a joiner below its share", Default: normal.SlowStart, Min: time.Duration(0), Max: time.Minute},
			{Name: "consecutive-failures", Help: "failures in a row that ours allows", Default: normal.ConsecutiveFailures, Min: 1, Max: 1000},
			{Name: "error-rate-threshold", Help: "share of failures above which ours evicts", Default: normal.ErrorRateThreshold, Min: 1e-6, Max: 0.99},
			{Name: "latency-factor", Help: "times the median above which ours evicts the slow, 0 for never", Default: normal.LatencyFactor, Min: 0.0, Max: 1000.0},
			{Name: "endpoint-rate", Help: "requests that a worker should get from a relay of ours, 0 for any; acts at low rates", Unit: "requests/s", Default: normal.EndpointRate, Min: 0.0, Max: 1000.0},
			{Name: "low-rate", Help: "also a fleet with little traffic", Default: true},
			{Name: "ramp", Help: "also a load that rises through the capacity", Default: true},
			{Name: "unequal", Help: "also relays with unequal traffic, and a zone with more traffic than the others", Default: true},
			{Name: "unequal-loads", Help: "arrivals ÷ capacity with unequal relays", Default: []float64{0.5, 0.75, 0.9}, Min: 0.05, Max: 1.05},
			{Name: "unequal-runs", Help: "runs of each cell with unequal relays", Unit: "runs", Default: 3, Quick: 1, Min: 1, Max: 100},
			{Name: "traffic-error", Help: "what the plan misses of the difference between a relay's traffic and the mean: 0 nothing, 1 everything", Default: 0.0, Min: 0.0, Max: 1.0},
			{Name: "service-times", Help: "file with service times, and arrivals if it has them: CSV, or a request log; scaled to the mean of 25 ms, so that only their shape counts", Default: ""},
			{Name: "max-eviction", Help: "the longest eviction of ours", Default: normal.MaxEviction, Min: time.Second, Max: time.Hour},
		},
		Promises: []scenario.Promise{
			{Name: typical, Relation: scenario.AtMost, Bound: 1.1, Why: "over the cells that are compared; greedy omniscience is a reference, not a bound"},
			{Name: nearBest, Relation: scenario.AtMost, Bound: 1.1, Why: "over the cells that are compared"},
			{Name: tail, Relation: scenario.AtMost, Bound: 1.2, Why: "over the cells that are compared; Prequal, with three probes for each request, has 1.23"},
			{Name: notWorse, Relation: scenario.AtMost, Bound: 1.01, Why: "no loss in any cell against Finagle's policy; a percent is the noise of a cell"},
			{Name: tailToo, Relation: scenario.AtMost, Bound: 1.01, Why: "nor in the tail"},
			{Name: failFast, Relation: scenario.AtMost, Bound: 0.1, Why: "a worker that fails fast must not look fast"},
			{Name: background, Relation: scenario.AtMost, Bound: 0, Why: "a failure everywhere is not the fault of one worker"},
			{Name: recovered, Relation: scenario.AtLeast, Bound: 0.7, Why: "a bad estimate must not lock a worker out"},
			{Name: narrows, Relation: scenario.AtMost, Bound: 0.99, Why: "the knowledge about a worker is useful only while it gets requests; three seeds gave 0.94 to 0.96"},
			{Name: overloaded, Relation: scenario.AtMost, Bound: 0.01, Why: "shedding is not failing: eviction under overload takes capacity away"},
			{Name: through, Relation: scenario.AtLeast, Bound: 0.97, Why: "from 75 to 174 % load workers that can work have work"},
			{Name: evenRendezvous, Relation: scenario.AtMost, Bound: 1.1, Why: "weights follow the traffic of relays"},
			{Name: evenProjection, Relation: scenario.AtMost, Bound: 1.1, Why: "wherever the connections let the load of the fullest worker stay below 95 %"},
			{Name: evenZones, Relation: scenario.AtMost, Bound: 1.1, Why: "the zone sends other zones what its workers should not take; at 90 % load these reach 99 %"},
		},
		Takes: 210 * time.Second, TakesQuick: 12 * time.Second,
		Run: run,
	}
}

func run(r *scenario.Run) error {
	measured, err := measuredOf(r)
	if err != nil {
		return err
	}
	g := gridOf(r)
	g.measured = measured
	rows, err := g.run(r)
	if err != nil {
		return err
	}
	judged := r.Text("judged")
	judge(r, rows, judged)
	writeTables(r, rows, judged)
	curves(r, rows, judged)
	if r.Bool("low-rate") {
		if err := lowRate(r, measured); err != nil {
			return err
		}
	}
	if r.Bool("ramp") {
		if err := ramp(r, measured); err != nil {
			return err
		}
	}
	if !r.Bool("unequal") {
		return nil
	}
	return unequal(r, measured)
}

// measuredOf reads the file of service times, if there is one.
func measuredOf(r *scenario.Run) (queueing.Measured, error) {
	path := r.Text("service-times")
	if path == "" {
		return queueing.Measured{}, nil
	}
	t, err := trace.ReadFile(path, trace.Config{})
	if err != nil {
		return queueing.Measured{}, fmt.Errorf("service-times: %w", err)
	}
	return queueing.Measured{Service: t.Scaled(queueing.MeanService), Mean: queueing.MeanService, Gaps: t.Gaps}, nil
}

// policies returns Ringway's policy and the policies of the comparison, in the order of tables.
func policies(cfg selection.Config) []queueing.Policy {
	return []queueing.Policy{
		policy.Omniscient,
		policy.Ringway(ours, cfg),
		policy.PeakEWMA,
		policy.Prequal(0.6),
		policy.EWMA,
		policy.LeastRequest,
		policy.RoundRobin,
	}
}

// configOf returns Ringway's configuration with the settings of a run.
func configOf(r *scenario.Run) selection.Config {
	cfg := selection.DefaultConfig()
	cfg.Redraws, cfg.Alpha, cfg.SlowStart = r.Int("redraws"), r.Float("alpha"), r.Duration("slow-start")
	cfg.ConsecutiveFailures, cfg.ErrorRateThreshold = r.Int("consecutive-failures"), r.Float("error-rate-threshold")
	cfg.LatencyFactor, cfg.MaxEviction = r.Float("latency-factor"), r.Duration("max-eviction")
	return cfg
}

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
