// Package failover simulates the loss of many members together: a datacenter, a region, a
// rack.
//
// The scenario has three parts. Plans of package affinity for a fleet that loses whole places
// show which members take over and which connections move. Traffic of relays with the real
// balancer, whose near workers fail or are lost, shows how much traffic goes to the region and
// beyond, and when the traffic returns. The loss of workers with adjacent addresses shows
// which relays are affected.
//
//	failover.go  settings and promises; loss of a datacenter, a region or a rack
//	traffic.go   traffic moves to other tiers and returns
package failover

import (
	"fmt"
	"slices"
	"time"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/selection"
	"github.com/ringway/ringway/sims/internal/fleet"
	"github.com/ringway/ringway/sims/internal/scenario"
)

// The promises, by name.
const (
	covered   = "relays of a worker while a place is lost"
	busy      = "workers of a relay while a place is lost"
	untouched = "connections opened in the region that lost nothing"
	spread    = "worst relay's loss, adjacent workers lost"
	staysNear = "share of the traffic that stays near, off what the healthy can take"
	failing   = "share of the attempts that fail, 10 s after something happened"
	recovers  = "time from the end of it until the traffic is near again"
)

// subject is the code under test; tests replace it with broken code.
type subject struct {
	// homeOnly relays use only the workers of their own datacenter.
	homeOnly bool
	ranges   rangesOf
}

// New returns the scenario.
func New() scenario.Scenario { return with(subject{ranges: hashed}) }

func with(s subject) scenario.Scenario {
	normal := selection.DefaultConfig()
	return scenario.Scenario{
		Name: "failover",
		Asks: "What happens when a datacenter, a region or a rack is lost, and when it is back?",
		Settings: []scenario.Setting{
			{Name: "relays", Help: "relays of each of 4 datacenters, in the plans", Default: 6, Min: 3, Max: 100},
			{Name: "workers", Help: "workers of each of them", Default: 60, Min: 3, Max: 5000},
			{Name: "places", Help: "members announce their datacenter and region", Default: true},
			{Name: "adjacent-relays", Help: "relays, where adjacent workers are lost", Default: 50, Min: 3, Max: 1000},
			{Name: "adjacent-workers", Help: "workers of them", Default: 1000, Min: 10, Max: 20_000},
			{Name: "adjacent-share", Help: "share of the workers that is lost", Default: 0.1, Min: 0.01, Max: 0.9},
			{Name: "load", Help: "arrivals ÷ capacity of a datacenter, for the traffic", Default: 0.5, Min: 0.05, Max: 0.95},
			{Name: "tiers", Help: "the balancer knows how far away a worker is", Default: true},
			{Name: "overprovisioning", Help: "times its fair share that a healthy worker may be loaded before traffic goes farther", Default: normal.Overprovisioning, Min: 1.0, Max: 100.0},
			{Name: "consecutive-failures", Help: "failures in a row that are allowed", Default: normal.ConsecutiveFailures, Min: 1, Max: 1_000_000},
			{Name: "error-rate-threshold", Help: "share of failures above which a worker is evicted", Default: normal.ErrorRateThreshold, Min: 1e-6, Max: 0.999},
			{Name: "max-eviction", Help: "the longest eviction", Default: normal.MaxEviction, Min: time.Second, Max: time.Hour},
			{Name: "after", Help: "how long the traffic is watched afterwards", Default: 45 * time.Second, Min: 10 * time.Second, Max: 10 * time.Minute},
		},
		Promises: []scenario.Promise{
			{Name: covered, Relation: scenario.AtLeast, Bound: 3, Unit: "relays", Why: "relays of the region, then any, fill up the number"},
			{Name: busy, Relation: scenario.AtLeast, Bound: 3, Unit: "workers", Why: "a relay without workers of its own takes those of the region, then any"},
			{Name: untouched, Relation: scenario.AtMost, Bound: 0, Unit: "connections", Why: "a datacenter that has enough of both sees no connection to another"},
			{Name: spread, Relation: scenario.AtMost, Bound: 0.3, Why: "on average over the places; a tenth lost is a tenth of each range, and chance"},
			{Name: staysNear, Relation: scenario.AtMost, Bound: 0.1, Why: "healthy share times overprovisioning, all of it at most"},
			{Name: failing, Relation: scenario.AtMost, Bound: 0.02, Why: "an evicted worker is tried from time to time"},
			{Name: recovers, Relation: scenario.AtMost, Bound: 20, Unit: "s", Why: "the running eviction, and the ramp after it"},
		},
		Takes: time.Second, TakesQuick: time.Second,
		Run: func(r *scenario.Run) error {
			for _, part := range []func(*scenario.Run, subject) error{plans, adjacent} {
				if err := part(r, s); err != nil {
					return err
				}
			}
			return traffic(r)
		},
	}
}

// sites lists the datacenters of the fleet, each with its region.
var sites = []affinity.Place{
	{Datacenter: "fra", Region: "eu"}, {Datacenter: "par", Region: "eu"},
	{Datacenter: "nyc", Region: "us"}, {Datacenter: "chi", Region: "us"},
}

// members lists the relays and workers of a fleet, by place.
type members struct {
	relays  []affinity.Relay
	workers []affinity.Worker
}

// fleetOf returns a fleet with equally many relays and workers in each datacenter. Without the
// setting places, members have no place.
func fleetOf(r *scenario.Run) (m members) {
	for s, place := range sites {
		if !r.Bool("places") {
			place = affinity.Place{}
		}
		for i := range r.Int("relays") {
			m.relays = append(m.relays, affinity.Relay{ID: fleet.RelayID(s*r.Int("relays") + i), Place: place})
		}
		for i := range r.Int("workers") {
			m.workers = append(m.workers, affinity.Worker{ID: fleet.WorkerID(s*r.Int("workers") + i), Place: place})
		}
	}
	return m
}

// loss describes the lost members: relays or workers or both of the first datacenters.
type loss struct {
	name            string
	sites           int
	relays, workers bool
}

var losses = []loss{
	{"workers of a datacenter", 1, false, true},
	{"relays of a datacenter", 1, true, false},
	{"a datacenter", 1, true, true},
	{"a region", 2, true, true},
}

func (l loss) from(r *scenario.Run, m members) members {
	out := m
	if l.relays {
		out.relays = m.relays[l.sites*r.Int("relays"):]
	}
	if l.workers {
		out.workers = m.workers[l.sites*r.Int("workers"):]
	}
	return out
}

// link is a connection, by the numbers of its ends.
type link struct{ relay, worker int }

// connections returns all connections of a plan, and the load of each worker when all relays
// carry equal traffic.
func (s subject) connections(m members) (map[link]bool, map[int]float64, error) {
	plan, err := affinity.NewPlan(affinity.PlanConfig{Service: "sim", Relays: m.relays, Workers: m.workers, RelaysPerService: len(m.relays)})
	if err != nil {
		return nil, nil, err
	}
	ofRelay, ofWorker := map[int]affinity.Place{}, map[int]affinity.Place{}
	for _, r := range m.relays {
		ofRelay[fleet.Number(r.ID)] = r.Place
	}
	for _, w := range m.workers {
		ofWorker[fleet.Number(w.ID)] = w.Place
	}
	links, load := map[link]bool{}, map[int]float64{}
	err = fleet.EachConnection(plan, func(relay, worker int, share float64) {
		if !s.homeOnly || ofRelay[relay] == ofWorker[worker] {
			links[link{relay, worker}] = true
			load[worker] += share
		}
	})
	return links, load, err
}

// plans removes places from a fleet.
func plans(r *scenario.Run, s subject) error {
	all := fleetOf(r)
	before, _, err := s.connections(all)
	if err != nil {
		return err
	}
	t := r.Table(scenario.Table{
		Name:  "plans",
		Title: fmt.Sprintf("connections of a fleet with %d relays and %d workers in each of %d datacenters, two of them in a region", r.Int("relays"), r.Int("workers"), len(sites)),
		Note:  "Opened are connections between members that were there all the time. Elsewhere is the region that lost nothing.",
		Columns: []scenario.Column{
			{Name: "lost", Key: true}, {Name: "relays of a worker, at least"}, {Name: "workers of a relay, at least"}, {Name: "heaviest worker ÷ mean", Digits: 2},
			{Name: "between datacenters", Unit: "%", Digits: 1}, {Name: "opened"}, {Name: "opened elsewhere"},
		},
	})
	p := r.Plot(scenario.Plot{
		Name: "plans", Title: "Connections while something is lost",
		X: scenario.Axis{Label: "lost"}, Y: scenario.Axis{Label: "connections", Unit: "connections"},
	})
	var kept, opened []float64
	for _, l := range losses {
		rest := l.from(r, all)
		during, load, err := s.connections(rest)
		if err != nil {
			return err
		}
		perRelay, perWorker := map[int]int{}, map[int]int{}
		crossing, fresh, elsewhere := 0, 0, 0
		for c := range during {
			perRelay[c.relay]++
			perWorker[c.worker]++
			from, to := c.relay/r.Int("relays"), c.worker/r.Int("workers") // sites
			if from != to {
				crossing++
			}
			if !before[c] {
				fresh++
				if min(from, to) >= len(sites)/2 { // both ends are in the region that lost nothing
					elsewhere++
				}
			}
		}
		fewestRelays, fewestWorkers := len(rest.relays), len(rest.workers)
		heaviest, sum := 0.0, 0.0
		for _, w := range rest.workers {
			fewestRelays = min(fewestRelays, perWorker[fleet.Number(w.ID)])
			heaviest = max(heaviest, load[fleet.Number(w.ID)])
			sum += load[fleet.Number(w.ID)]
		}
		for _, relay := range rest.relays {
			fewestWorkers = min(fewestWorkers, perRelay[fleet.Number(relay.ID)])
		}
		t.Add(l.name, fewestRelays, fewestWorkers, heaviest*float64(len(rest.workers))/sum, 100*float64(crossing)/float64(len(during)), fresh, elsewhere)
		r.Check(covered, float64(fewestRelays), l.name)
		r.Check(busy, float64(fewestWorkers), l.name)
		r.Check(untouched, float64(elsewhere), l.name)
		p.Categories = append(p.Categories, l.name)
		kept, opened = append(kept, float64(len(during)-fresh)), append(opened, float64(fresh))
	}
	p.Bars("kept", kept)
	p.Bars("opened", opened)
	p.Conclusion = fmt.Sprintf("The remaining members open %.0f connections when a datacenter is lost, %.0f when a region is; where a place loses its workers or its relays alone, the region takes over with %.0f and %.0f.", opened[2], opened[3], opened[0], opened[1])
	return nil
}

// rangesOf returns the positions of each relay's workers. Workers are numbered in the order of
// their addresses.
type rangesOf func(relays, workers int) ([][]int, error)

// hashed returns the ranges that relays use, in the order of hashes.
func hashed(relays, workers int) ([][]int, error) {
	f := fleet.New(relays, workers)
	links, _, err := subject{}.connections(members{affinity.Relays(f.RelayIDs()), affinity.Workers(f.WorkerIDs())})
	if err != nil {
		return nil, err
	}
	out := make([][]int, relays)
	for l := range links {
		out[l.relay] = append(out[l.relay], l.worker)
	}
	return out, nil
}

// byAddress returns the same ranges in the order of addresses.
func byAddress(relays, workers int) ([][]int, error) {
	out := make([][]int, relays)
	for i := range out {
		rng, err := affinity.Shape{Relays: relays, Workers: workers, Minimums: affinity.DefaultMinimums}.Range(i)
		if err != nil {
			return nil, err
		}
		out[i] = slices.Collect(rng.All())
	}
	return out, nil
}

// lossOf returns the share of workers that each relay loses, the largest first. The lost workers
// are consecutive from begin on.
func lossOf(ranges [][]int, workers, begin, lost int) []float64 {
	out := make([]float64, len(ranges))
	for i, has := range ranges {
		for _, w := range has {
			if (w-begin+workers)%workers < lost {
				out[i] += 1 / float64(len(has))
			}
		}
	}
	slices.Sort(out)
	slices.Reverse(out)
	return out
}

// adjacent removes workers with adjacent addresses, such as a rack or a batch of a deployment.
func adjacent(r *scenario.Run, s subject) error {
	relays, workers := r.Int("adjacent-relays"), r.Int("adjacent-workers")
	lost := int(float64(workers) * r.Float("adjacent-share"))
	t := r.Table(scenario.Table{
		Name: "adjacent", Title: fmt.Sprintf("%d address-adjacent workers of %d lost, %d relays; every place on the ring of addresses", lost, workers, relays),
		Columns: []scenario.Column{
			{Name: "order of the ring", Key: true}, {Name: "worst relay's loss, mean", Unit: "%", Digits: 1}, {Name: "at worst", Unit: "%", Digits: 1}, {Name: "relays that lose everything, mean", Digits: 1},
		},
	})
	p := r.Plot(scenario.Plot{
		Name: "adjacent", Title: fmt.Sprintf("Workers that each relay loses when %d adjacent ones of %d are lost", lost, workers),
		X: scenario.Axis{Label: "relays, from the worst on", Unit: "1"}, Y: scenario.Axis{Label: "lost", Unit: "%"},
	})
	var figures []float64
	for _, order := range []struct {
		name   string
		ranges rangesOf
	}{{"hashes", s.ranges}, {"addresses", byAddress}} {
		ranges, err := order.ranges(relays, workers)
		if err != nil {
			return err
		}
		average, worst, all, places := 0.0, 0.0, 0.0, 0.0
		for begin := 0; begin < workers; begin += max(1, workers/200) {
			losses := lossOf(ranges, workers, begin, lost)
			places++
			average += losses[0]
			worst = max(worst, losses[0])
			for _, share := range losses {
				if share > 0.999 {
					all++
				}
			}
		}
		average /= places
		t.Add(order.name, 100*average, 100*worst, all/places)
		figures = append(figures, average)
		line := p.Line("in the order of " + order.name)
		for i, share := range lossOf(ranges, workers, 0, lost) {
			line.At(float64(i+1), 100*share)
		}
		if order.name == "hashes" {
			r.Check(spread, average, fmt.Sprintf("%d relays, %d workers, %d lost", relays, workers, lost))
		}
	}
	p.Conclusion = fmt.Sprintf("In the order of hashes the worst relay loses %.0f %% of its workers on average, in the order of addresses %.0f %%.", 100*figures[0], 100*figures[1])
	return nil
}
