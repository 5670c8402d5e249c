package failover

import (
	"fmt"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/sims/internal/fleet"
	"github.com/ringway/ringway/sims/internal/scenario"
)

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
