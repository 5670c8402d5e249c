// Package zones measures how much traffic crosses zones, and how full workers are, while one zone
// gets more or less traffic than the others.
//
// Zones have equally many relays and workers. With a zone slack s, the workers of a zone get at
// most s times the mean load; what the relays of the zone carry beyond that must cross. The
// scenario compares plans with that least, with zones that keep to themselves, and with plans
// that know no zones.
package zones

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/sims/internal/fleet"
	"github.com/ringway/ringway/sims/internal/scenario"
)

// The promises, by name.
const (
	crosses = "traffic that crosses zones ÷ the least that the slack allows"
	fullest = "load of the fullest worker ÷ the most that the slack allows"
)

// subject is the code under test; tests replace it with broken code.
type subject struct {
	plan func(affinity.PlanConfig) (*affinity.Plan, error)
}

// New returns the scenario.
func New() scenario.Scenario { return with(subject{affinity.NewPlan}) }

func with(sub subject) scenario.Scenario {
	strategies := []string{string(affinity.Projection), string(affinity.Rendezvous)}
	return scenario.Scenario{
		Name: "zones",
		Asks: "How much traffic crosses zones, and how full are workers, while one zone gets more traffic than the others?",
		Settings: []scenario.Setting{
			{Name: "zones", Help: "zones of one region", Default: 3, Min: 2, Max: 20},
			{Name: "relays", Help: "relays of each zone", Default: 10, Min: 1, Max: 200},
			{Name: "workers", Help: "workers of each zone", Default: 60, Min: 3, Max: 5000},
			{Name: "m", Help: "relays per worker, at least", Unit: "relays", Default: affinity.DefaultMinimums.PeersPerWorker, Min: affinity.LeastPeersPerWorker, Max: 100},
			{Name: "strategy", Help: "the strategy of the plans", Default: strategies[0], OneOf: strategies},
			{Name: "skews", Help: "traffic of one zone ÷ that of each other zone, as far as plans follow it", Default: []float64{0.5, 0.75, 1, 1.25, 1.5, 1.75, 2, 2.5, 3}, Quick: []float64{0.5, 1, 1.5, 2, 3}, Min: 1.0 / affinity.MaxTrafficRatio, Max: float64(affinity.MaxTrafficRatio)},
			{Name: "slacks", Help: "zone slacks; with 10 every zone keeps to itself", Default: []float64{1, affinity.PlanConfig{}.WithDefaults().ZoneSlack, 1.5, 10}, Min: 1.0, Max: 10.0},
			{Name: "known", Help: "the plan knows the traffic of each relay", Default: true},
		},
		Promises: []scenario.Promise{
			{Name: crosses, Relation: scenario.AtMost, Bound: 1.02, Why: "traffic leaves a zone only where its workers would get too much"},
			{Name: fullest, Relation: scenario.AtMost, Bound: 1.02, Why: "what leaves a zone goes where there is room"},
		},
		Takes: time.Second, TakesQuick: time.Second,
		Run: func(r *scenario.Run) error { return run(r, sub) },
	}
}

// figures are the results of one plan.
type figures struct {
	crossing float64 // share of the traffic
	fullest  float64 // load of the fullest worker ÷ mean
	links    float64 // share of the connections that join a relay and a worker of two zones
}

// traffic is how traffic divides among zones: the first zone has skew times that of each other.
type traffic struct {
	zones int
	skew  float64
}

// of returns the share of a zone.
func (t traffic) of(zone int) float64 {
	if zone == 0 {
		return t.skew / (t.skew + float64(t.zones-1))
	}
	return 1 / (t.skew + float64(t.zones-1))
}

// leastCrossing returns the share of the traffic that zones must give away at a slack.
func (t traffic) leastCrossing(slack float64) (sum float64) {
	for zone := range t.zones {
		sum += max(0, t.of(zone)-slack/float64(t.zones))
	}
	return sum
}

// mostLoad returns the load of the fullest worker ÷ mean that a slack allows.
func (t traffic) mostLoad(slack float64) float64 {
	return min(slack, max(t.of(0), t.of(1))*float64(t.zones))
}

// noZones is the slack of a plan that knows no zones.
const noZones = 0

// measure plans the fleet and measures it with the real traffic.
func measure(r *scenario.Run, sub subject, t traffic, slack float64) (figures, error) {
	f := fleet.New(t.zones*r.Int("relays"), t.zones*r.Int("workers"))
	relays, workers := affinity.Relays(f.RelayIDs()), affinity.Workers(f.WorkerIDs())
	zoneOf := func(member int) int { return member % t.zones }
	place := func(member int) affinity.Place {
		if slack == noZones {
			return affinity.Place{}
		}
		return affinity.Place{Datacenter: fmt.Sprintf("zone-%d", zoneOf(member)), Region: "region"}
	}
	// share returns the share of the traffic that a relay carries.
	share := func(relay int) float64 { return t.of(zoneOf(relay)) / float64(r.Int("relays")) }
	for i := range relays {
		relays[i].Place = place(i)
		if r.Bool("known") {
			relays[i].Traffic = int(math.Round(1e9 * share(i)))
		}
	}
	for i := range workers {
		workers[i].Place = place(i)
	}
	p, err := sub.plan(affinity.PlanConfig{
		Service: "zones", Relays: relays, Workers: workers, RelaysPerService: max(len(relays), r.Int("m")),
		Strategy: affinity.Strategy(r.Text("strategy")), ZoneSlack: slack,
		Minimums: affinity.Minimums{PeersPerWorker: r.Int("m"), PeersPerRelay: affinity.DefaultMinimums.PeersPerRelay},
	})
	if err != nil {
		return figures{}, err
	}
	var out figures
	loads, links := make([]float64, len(workers)), 0
	err = fleet.EachConnection(p, func(relay, worker int, weight float64) {
		loads[worker] += weight * share(relay)
		links++
		if zoneOf(relay) != zoneOf(worker) {
			out.crossing += weight * share(relay)
			out.links++
		}
	})
	out.links /= float64(links)
	out.fullest = slices.Max(loads) * float64(len(workers))
	return out, err
}

func run(r *scenario.Run, sub subject) error {
	skews, slacks := r.Floats("skews"), append(r.Floats("slacks"), noZones)
	got := make([]figures, len(skews)*len(slacks))
	at := func(i int) (traffic, float64) {
		return traffic{r.Int("zones"), skews[i/len(slacks)]}, slacks[i%len(slacks)]
	}
	if err := r.Parallel(len(got), func(i int) (err error) {
		t, slack := at(i)
		got[i], err = measure(r, sub, t, slack)
		return err
	}); err != nil {
		return err
	}
	table := r.Table(scenario.Table{
		Name: "zones", Section: "zones",
		Title: fmt.Sprintf("%d zones of %d relays and %d workers, m = %d, %s", r.Int("zones"), r.Int("relays"), r.Int("workers"), r.Int("m"), r.Text("strategy")),
		Columns: []scenario.Column{
			{Name: "traffic of one zone ÷ each other", Digits: 2, Key: true}, {Name: "zone slack", Key: true},
			{Name: "traffic that crosses", Unit: "%", Digits: 1}, {Name: "least possible", Unit: "%", Digits: 1},
			{Name: "load of the fullest worker ÷ mean", Digits: 2}, {Name: "connections between zones", Unit: "%", Digits: 0},
		},
	})
	for i, f := range got {
		t, slack := at(i)
		if slack == noZones {
			table.Add(t.skew, name(slack), 100*f.crossing, nil, f.fullest, 100*f.links)
			continue
		}
		least := t.leastCrossing(slack)
		table.Add(t.skew, name(slack), 100*f.crossing, 100*least, f.fullest, 100*f.links)
		where := fmt.Sprintf("skew %v, slack %v", t.skew, slack)
		const nothing = 1e-6 // a share that counts as none, because the least may be 0
		r.Check(crosses, (f.crossing+nothing)/(least+nothing), where)
		r.Check(fullest, f.fullest/t.mostLoad(slack), where)
	}
	draw(r, skews, slacks, got)
	return nil
}

// name returns a slack in words.
func name(slack float64) string {
	switch slack {
	case noZones:
		return "no zones"
	case 10:
		return "every zone keeps to itself"
	}
	return fmt.Sprintf("slack %v", slack)
}

// draw draws both figures over the skew.
func draw(r *scenario.Run, skews, slacks []float64, got []figures) {
	x := scenario.Axis{Label: "traffic of one zone ÷ each other", Unit: "1"}
	crossing := r.Plot(scenario.Plot{
		Name: "crossing", Title: "Traffic that crosses zones", X: x, Y: scenario.Axis{Label: "traffic that crosses", Unit: "%"},
	})
	load := r.Plot(scenario.Plot{
		Name: "fullest", Title: "Load of the fullest worker", X: x, Y: scenario.Axis{Label: "load of the fullest worker ÷ mean", Unit: "1"},
	})
	for j, slack := range slacks {
		a, b := crossing.Line(name(slack)), load.Line(name(slack))
		if slack == noZones {
			a.Style, b.Style = scenario.Dashed, scenario.Dashed
		}
		for i, skew := range skews {
			f := got[i*len(slacks)+j]
			a.At(skew, 100*f.crossing)
			b.At(skew, f.fullest)
		}
	}
	usual := max(0, slices.Index(slacks, affinity.PlanConfig{}.WithDefaults().ZoneSlack))
	last := got[len(got)-len(slacks):]
	ours, none, worst := last[usual], last[len(last)-1], 0.0
	for _, f := range last {
		worst = max(worst, f.fullest)
	}
	crossing.Conclusion = fmt.Sprintf("When one zone has %v times the traffic of each other, %.0f %% crosses with %s, and %.0f %% without zones.",
		skews[len(skews)-1], 100*ours.crossing, name(slacks[usual]), 100*none.crossing)
	load.Conclusion = fmt.Sprintf("When one zone has %v times the traffic of each other, the fullest worker has %.2f times the mean load with %s, and at worst %.2f times.",
		skews[len(skews)-1], ours.fullest, name(slacks[usual]), worst)
}
