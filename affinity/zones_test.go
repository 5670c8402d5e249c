package affinity_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/ringway/ringway/affinity"
	"pgregory.net/rapid"
)

// zonesOf sums the traffic that each zone sends to each, in parts of all traffic, and the parts of
// the relays' traffic and of the workers' weight that each zone has.
func zonesOf(t rapid.TB, p *affinity.Plan, cfg affinity.PlanConfig) (flow map[[2]affinity.Place]float64, supply, capacity map[affinity.Place]float64) {
	flow, supply, capacity = map[[2]affinity.Place]float64{}, map[affinity.Place]float64{}, map[affinity.Place]float64{}
	place := map[string]affinity.Place{}
	weights := 0.0
	for _, w := range cfg.Workers {
		weights += float64(max(w.Weight, 1))
	}
	for _, w := range cfg.Workers {
		place[w.ID] = w.Place
		capacity[w.Place] += float64(max(w.Weight, 1)) / weights
	}
	for _, r := range cfg.Relays {
		place[r.ID] = r.Place
	}
	supplies := supplies(p, cfg.Relays)
	for i, relay := range p.Affine() {
		assignments, err := p.Assignments(i)
		if err != nil {
			t.Fatal(err)
		}
		traffic := supplies[i] / float64(len(supplies))
		supply[place[relay]] += traffic
		for _, a := range assignments {
			flow[[2]affinity.Place{place[relay], place[a.Worker]}] += a.Weight * traffic
		}
	}
	return flow, supply, capacity
}

// costOf is what crossing costs: nothing in a zone, 1 in a region, 10 beyond.
func costOf(flow map[[2]affinity.Place]float64) float64 {
	cost := 0.0
	for pair, f := range flow {
		cost += f * crossing(pair[0], pair[1])
	}
	return cost
}

func crossing(a, b affinity.Place) float64 { return []float64{0, 1, 10}[a.Tier(b)] }

// leastCost is the reference: the cheapest flow, by shortest augmenting paths (Bellman and Ford).
func leastCost(supply, capacity map[affinity.Place]float64, slack float64) float64 {
	type edge struct {
		from, to   int
		room, cost float64
	}
	var edges []edge
	add := func(from, to int, room, cost float64) {
		edges = append(edges, edge{from, to, room, cost}, edge{to, from, 0, -cost})
	}
	const source, sink = 0, 1
	nodes := 2
	number := map[string]int{}
	node := func(side string, p affinity.Place) int {
		key := side + p.Region + "/" + p.Datacenter
		if number[key] == 0 {
			number[key] = nodes
			nodes++
		}
		return number[key]
	}
	for y, s := range supply {
		add(source, node("relays ", y), s, 0)
		for z := range capacity {
			add(node("relays ", y), node("workers ", z), 2, crossing(y, z))
		}
	}
	for z, c := range capacity {
		add(node("workers ", z), sink, slack*c, 0)
	}
	total := 0.0
	for range 1000 {
		distance, via := make([]float64, nodes), make([]int, nodes)
		for i := range distance {
			distance[i] = math.Inf(1)
		}
		distance[source] = 0
		for range nodes {
			for i, e := range edges {
				if e.room > 1e-12 && distance[e.from]+e.cost < distance[e.to]-1e-9 {
					distance[e.to], via[e.to] = distance[e.from]+e.cost, i
				}
			}
		}
		if math.IsInf(distance[sink], 1) {
			return total
		}
		amount := math.Inf(1)
		for at := sink; at != source; at = edges[via[at]].from {
			amount = min(amount, edges[via[at]].room)
		}
		for at := sink; at != source; at = edges[via[at]].from {
			edges[via[at]].room -= amount
			edges[via[at]^1].room += amount
		}
		total += amount * distance[sink]
	}
	panic("no end")
}

var zonedFleet = rapid.Custom(func(t *rapid.T) affinity.PlanConfig {
	cfg := affinity.PlanConfig{Service: "s", RelaysPerService: 1000, PeersPerTier: 1, ZoneSlack: rapid.SampledFrom([]float64{1, 1.1, 1.5}).Draw(t, "slack"),
		Strategy: rapid.SampledFrom([]affinity.Strategy{affinity.Projection, affinity.Rendezvous}).Draw(t, "strategy")}
	for zone := range rapid.IntRange(1, 6).Draw(t, "zones") {
		place := affinity.Place{Datacenter: fmt.Sprint("dc", zone), Region: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "region")}
		traffic := rapid.IntRange(5, 15).Draw(t, "traffic")
		for i := range rapid.SampledFrom([]int{0, 6, 9}).Draw(t, "relays") {
			cfg.Relays = append(cfg.Relays, affinity.Relay{ID: fmt.Sprintf("r-%d-%d", zone, i), Place: place, Traffic: traffic})
		}
		for i := range rapid.SampledFrom([]int{0, 97, 200}).Draw(t, "workers") {
			cfg.Workers = append(cfg.Workers, affinity.Worker{ID: fmt.Sprintf("w-%d-%d", zone, i), Place: place})
		}
	}
	if len(cfg.Relays) == 0 {
		cfg.Relays = someRelays(1)
	}
	if len(cfg.Workers) == 0 {
		cfg.Workers = someWorkers(1)
	}
	return cfg
})

// Traffic stays in its zone until the workers there would get more than the slack, and then
// crosses as little and as near as possible.
func TestNoMoreTrafficCrossesThanTheSlackAsksFor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := zonedFleet.Draw(t, "fleet")
		p, err := affinity.NewPlan(cfg)
		if err != nil {
			t.Fatal(err)
		}
		flow, supply, capacity := zonesOf(t, p, cfg)
		for _, said := range p.Zones() {
			if want := flow[[2]affinity.Place{said.From, said.To}]; math.Abs(said.Share-want) > 1e-9 {
				t.Fatalf("Zones says %v from %v to %v, want %v", said.Share, said.From, said.To, want)
			}
		}
		got, least := costOf(flow), leastCost(supply, capacity, cfg.ZoneSlack)
		if got > 1.02*least+1e-4 {
			t.Fatalf("crossing costs %.5f, %.5f is enough: %v of %v for %v", got, least, flow, supply, capacity)
		}
		for zone, c := range capacity {
			in := 0.0
			for pair, f := range flow {
				if pair[1] == zone {
					in += f
				}
			}
			if in > cfg.ZoneSlack*c*1.02 { // a hundredth for what the connections cannot do
				t.Fatalf("%v gets %.4f of the traffic for %.4f of the capacity: %s %v %v, %v of %v for %v", zone, in, c, cfg.Strategy, len(cfg.Relays), len(cfg.Workers), flow, supply, capacity)
			}
		}
	})
}

// Cases that users of other balancers published.
func TestPublishedCasesOfZones(t *testing.T) {
	type zone struct {
		relays, workers, traffic int
	}
	for _, c := range []struct {
		name     string
		zones    []zone
		slack    float64
		most     float64 // load of a worker, as a multiple of the mean
		crossing float64 // share of the traffic
	}{
		// kubernetes#122437: 11 endpoints spread as 4, 4 and 3 under equal traffic.
		{"4/4/3", []zone{{5, 4, 1}, {5, 4, 1}, {5, 3, 1}}, 1.1, 1.1, 0.034},
		{"4/4/3 without slack", []zone{{5, 4, 1}, {5, 4, 1}, {5, 3, 1}}, 1, 1, 0.061},
		// istio#50727: the autoscaler removes workers of one zone, whose clients stay.
		{"autoscaler skew", []zone{{6, 20, 1}, {6, 20, 1}, {6, 5, 1}}, 1.1, 1.1, 0.212},
		// cloudfoundry/routing-release#292: all requests come in through the routers of one zone.
		{"all traffic in one zone", []zone{{6, 24, 4}, {6, 24, 1}}, 1.1, 1.1, 0.26},
		// envoy#28419: zones of clients and of workers do not match.
		{"mismatched zones", []zone{{6, 0, 1}, {6, 30, 1}, {0, 30, 1}}, 1.1, 1.1, 0.5},
		// envoy#37275: the sources of traffic weigh differently.
		{"source weights", []zone{{6, 30, 3}, {6, 30, 2}, {6, 30, 1}}, 1.1, 1.1, 0.14},
		{"equal zones", []zone{{6, 30, 2}, {6, 30, 2}, {6, 30, 2}}, 1.1, 1, 0},
	} {
		cfg := affinity.PlanConfig{Service: "s", RelaysPerService: 100, ZoneSlack: c.slack}
		for i, z := range c.zones {
			place := affinity.Place{Datacenter: fmt.Sprint("zone-", i), Region: "r"}
			for j := range z.relays {
				cfg.Relays = append(cfg.Relays, affinity.Relay{ID: fmt.Sprintf("r-%d-%d", i, j), Place: place, Traffic: 100 * z.traffic})
			}
			for j := range z.workers {
				cfg.Workers = append(cfg.Workers, affinity.Worker{ID: fmt.Sprintf("w-%d-%d", i, j), Place: place})
			}
		}
		p := mustPlan(t, cfg)
		most, crosses := 0.0, 0.0
		for _, load := range p.Loads() {
			most = max(most, load)
		}
		for _, flow := range p.Zones() {
			if flow.From != flow.To {
				crosses += flow.Share
			}
		}
		t.Logf("%s: %.3f of the mean at most, %.3f of the traffic crosses", c.name, most, crosses)
		if most > c.most+0.005 || crosses > c.crossing*1.02+0.001 {
			t.Errorf("%s: the fullest worker gets %.3f of the mean, %.3f of the traffic crosses: want %.3f and %.3f", c.name, most, crosses, c.most, c.crossing)
		}
	}
}

// The workers of one zone are all gone: the others take its traffic immediately.
func TestAZoneWithoutWorkersIsServedByTheOthers(t *testing.T) {
	cfg := affinity.PlanConfig{Service: "s", RelaysPerService: 100}
	for zone := range 3 {
		place := affinity.Place{Datacenter: fmt.Sprint("zone-", zone), Region: "r"}
		for i := range 6 {
			cfg.Relays = append(cfg.Relays, affinity.Relay{ID: fmt.Sprintf("r-%d-%d", zone, i), Place: place})
		}
		for i := range 30 * min(zone, 1) {
			cfg.Workers = append(cfg.Workers, affinity.Worker{ID: fmt.Sprintf("w-%d-%d", zone, i), Place: place})
		}
	}
	p := mustPlan(t, cfg)
	for w, load := range p.Loads() {
		if math.Abs(load-1) > 0.02 {
			t.Errorf("%s gets %.3f of the mean", p.Workers()[w], load)
		}
	}
	if c := p.Coverage(); c.Min < 3 || c.MinPerRelay < 3 {
		t.Errorf("%+v", c)
	}
}

// Three equal zones, and 16 of 30 relays serve, unequally many of each zone. The others forward
// within their zone, so nothing needs to cross, and nothing does.
func TestEqualZonesKeepTheirTrafficWhereSomeRelaysForward(t *testing.T) {
	for _, strategy := range []affinity.Strategy{affinity.Projection, affinity.Rendezvous} {
		cfg := affinity.PlanConfig{Service: "billing", Strategy: strategy}
		for zone := range 3 {
			place := affinity.Place{Datacenter: fmt.Sprint("zone-", zone), Region: "r"}
			for i := range 10 {
				cfg.Relays = append(cfg.Relays, affinity.Relay{ID: fmt.Sprintf("r-%d-%d", zone, i), Place: place})
			}
			for i := range 30 {
				cfg.Workers = append(cfg.Workers, affinity.Worker{ID: fmt.Sprintf("w-%d-%d", zone, i), Place: place})
			}
		}
		p := mustPlan(t, cfg)
		serving := map[string]int{}
		for _, relay := range p.Affine() {
			serving[relay[:3]]++
		}
		if serving["r-0"] == serving["r-1"] && serving["r-1"] == serving["r-2"] {
			t.Fatalf("%d relays of each zone serve: the case is another one", serving["r-0"])
		}
		for _, flow := range p.Zones() {
			if flow.From != flow.To {
				t.Errorf("%s: %.3f of the traffic goes from %v to %v, of %v relays that serve", strategy, flow.Share, flow.From, flow.To, serving)
			}
		}
		for w, load := range p.Loads() {
			if math.Abs(load-1) > 1e-6 {
				t.Errorf("%s: %s gets %.3f of its share", strategy, p.Workers()[w], load)
			}
		}
	}
}

// A zone of relays whose region is full serves a zone far away, and nothing else. Its relays are
// guests there, on a ring of their own.
func TestRelaysThatAreOnlyGuestsHaveWeights(t *testing.T) {
	for _, strategy := range []affinity.Strategy{affinity.Projection, affinity.Rendezvous} {
		cfg := affinity.PlanConfig{Service: "s", RelaysPerService: 100, PeersPerTier: 1, ZoneSlack: 1, Strategy: strategy}
		for _, zone := range []struct {
			dc, region      string
			relays, workers int
		}{{"a", "x", 6, 30}, {"b", "x", 6, 0}, {"c", "y", 0, 30}} {
			place := affinity.Place{Datacenter: zone.dc, Region: zone.region}
			for i := range zone.relays {
				cfg.Relays = append(cfg.Relays, affinity.Relay{ID: fmt.Sprint("r-", zone.dc, i), Place: place})
			}
			for i := range zone.workers {
				cfg.Workers = append(cfg.Workers, affinity.Worker{ID: fmt.Sprint("w-", zone.dc, i), Place: place})
			}
		}
		p := mustPlan(t, cfg)
		for _, flow := range p.Zones() {
			if pair := flow.From.Datacenter + flow.To.Datacenter; pair != "aa" && pair != "bc" {
				t.Errorf("%s: %.9f of the traffic goes from %v to %v", strategy, flow.Share, flow.From, flow.To)
			}
		}
		for w, load := range p.Loads() {
			if !(math.Abs(load-1) < 0.05) { // NaN is wrong, too
				t.Errorf("%s: %s gets %v of its share", strategy, p.Workers()[w], load)
			}
		}
	}
}

// equalZones is a fleet of equal zones.
func equalZones(zones, relays, workers int) (cfg affinity.PlanConfig) {
	for zone := range zones {
		place := affinity.Place{Datacenter: fmt.Sprint("zone-", zone), Region: "r"}
		for i := range relays {
			cfg.Relays = append(cfg.Relays, affinity.Relay{ID: fmt.Sprintf("r-%d-%d", zone, i), Place: place})
		}
		for i := range workers {
			cfg.Workers = append(cfg.Workers, affinity.Worker{ID: fmt.Sprintf("w-%d-%d", zone, i), Place: place})
		}
	}
	return cfg
}

// A relay that forwards leaves its zone when fewer than three relays there serve.
func TestAServiceOfFewRelaysHasEnoughInEachZoneOfItsWorkers(t *testing.T) {
	for zones := 2; zones <= 6; zones++ {
		cfg := equalZones(zones, 100/zones, 10)
		for n := range 50 {
			cfg.Service = fmt.Sprint("service-", n)
			p := mustPlan(t, cfg)
			if n := len(p.Affine()); n != max(10, 3*zones) {
				t.Errorf("%s in %d zones: %d relays serve it", cfg.Service, zones, n)
			}
			for _, flow := range p.Zones() {
				if flow.From != flow.To {
					t.Errorf("%s in %d zones: %.3f of the traffic goes from %v to %v", cfg.Service, zones, flow.Share, flow.From, flow.To)
				}
			}
			serving, local := map[string]int{}, map[string]int{}
			for _, relay := range p.Affine() {
				serving[relay[:3]]++
			}
			for pair := range connections(t, p) {
				if pair[0][1:3] == pair[1][1:3] {
					local[pair[1]]++
				}
			}
			for _, w := range cfg.Workers {
				if serving["r"+w.ID[1:3]] < 3 || local[w.ID] < 3 {
					t.Errorf("%s in %d zones: %d relays of the zone of %s serve, %d are connected to it", cfg.Service, zones, serving["r"+w.ID[1:3]], w.ID, local[w.ID])
				}
			}
		}
	}
}

// A zone is what the datacenter names: workers that state no region are at home there, too.
func TestRelaysServeTheirZoneAlsoWhereItsWorkersStateNoRegion(t *testing.T) {
	cfg := equalZones(4, 25, 10)
	for i := range cfg.Workers {
		cfg.Workers[i].Region = ""
	}
	for n := range 20 {
		cfg.Service = fmt.Sprint("service-", n)
		serving := map[string]int{}
		for _, relay := range mustPlan(t, cfg).Affine() {
			serving[relay[:3]]++
		}
		if want := map[string]int{"r-0": 3, "r-1": 3, "r-2": 3, "r-3": 3}; !maps.Equal(serving, want) {
			t.Errorf("%s: %v serve", cfg.Service, serving)
		}
	}
}

// A set number is kept, and zones without workers get only their proportion.
func TestTheZonesOfAServiceShareANumberThatIsTooSmallForAll(t *testing.T) {
	for k, want := range map[int]map[string]int{
		5:  {"r-0": 2, "r-1": 2, "r-2": 0, "r-3": 1},
		12: {"r-0": 5, "r-1": 4, "r-2": 0, "r-3": 3},
	} {
		cfg := equalZones(4, 12, 6)
		cfg.Service, cfg.RelaysPerService = "billing", k
		cfg.Relays = append(cfg.Relays[:25:25], cfg.Relays[36:]...)    // one in zone-2
		cfg.Workers = append(cfg.Workers[:12:12], cfg.Workers[18:]...) // none in zone-2
		cfg.Relays = slices.DeleteFunc(cfg.Relays, func(r affinity.Relay) bool { return r.ID[:3] == "r-3" && r.ID > "r-3-4" })
		serving := map[string]int{"r-0": 0, "r-1": 0, "r-2": 0, "r-3": 0}
		for _, relay := range mustPlan(t, cfg).Affine() {
			serving[relay[:3]]++
		}
		if !maps.Equal(serving, want) {
			t.Errorf("%d relays per service: %v, want %v", k, serving, want)
		}
	}
}

func TestARelayThatLeavesALargeZoneMovesNoSlotOfAnother(t *testing.T) {
	for n := range 30 {
		cfg := equalZones(3, 100, 20)
		cfg.Service = fmt.Sprint("service-", n)
		before := mustPlan(t, cfg).Affine()
		for range 3 {
			cfg.Relays = slices.Delete(cfg.Relays, 50, 51) // of zone-0
			for i, relay := range mustPlan(t, cfg).Affine() {
				if relay != before[i] && before[i][:3] != "r-0" {
					t.Errorf("%s: slot %d goes from %s to %s", cfg.Service, i, before[i], relay)
				}
			}
		}
	}
}

// Ten relays serve, four of one zone and three of each other one, so each of the four carries less
// of what the whole zone gets. A relay that states what it carries must not make the others seem equal.
func TestAStatementOfWhatARelayWasExpectedToCarryMovesNoTraffic(t *testing.T) {
	for n := range 10 {
		cfg := equalZones(3, 13, 15)
		cfg.Service = fmt.Sprint("service-", n)
		silent := mustPlan(t, cfg)
		serving := map[string]int{}
		for _, relay := range silent.Affine() {
			serving[relay[:3]]++
		}
		first := silent.Affine()[0]
		for i := range cfg.Relays {
			if cfg.Relays[i].ID == first {
				cfg.Relays[i].Traffic = 1200 / serving[first[:3]]
			}
		}
		stated := mustPlan(t, cfg)
		for _, flow := range stated.Zones() {
			if flow.From != flow.To {
				t.Errorf("%s, %v relays: %.3f of the traffic goes from %v to %v", cfg.Service, serving, flow.Share, flow.From, flow.To)
			}
		}
		if err := samePlan(silent, stated); err != nil {
			t.Errorf("%s, %v relays: %v", cfg.Service, serving, err)
		}
	}
}
