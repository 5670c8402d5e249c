package affinity_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/ringway/ringway/affinity"
	"pgregory.net/rapid"
)

var anyPlace = rapid.Custom(func(t *rapid.T) affinity.Place {
	return affinity.Place{
		Datacenter: rapid.SampledFrom([]string{"", "a", "a", "b", "b", "c", "d"}).Draw(t, "dc"),
		Region:     rapid.SampledFrom([]string{"", "x", "x", "y"}).Draw(t, "region"),
	}
})

// anyFleet has members in random places, of random weights, under random settings.
var anyFleet = rapid.Custom(func(t *rapid.T) affinity.PlanConfig {
	cfg := affinity.PlanConfig{
		Service:      rapid.StringMatching(`[a-z]{1,4}`).Draw(t, "service"),
		Relays:       someRelays(rapid.IntRange(1, 25).Draw(t, "relays")),
		Workers:      someWorkers(rapid.IntRange(1, 60).Draw(t, "workers")),
		Minimums:     affinity.Minimums{PeersPerWorker: rapid.IntRange(3, 5).Draw(t, "m"), PeersPerRelay: rapid.IntRange(1, 5).Draw(t, "p")},
		PeersPerTier: rapid.IntRange(1, 6).Draw(t, "per tier"),
		IndexSource:  rapid.SampledFrom([]affinity.IndexSource{affinity.IndexRank, affinity.IndexSlot}).Draw(t, "index source"),
		Strategy:     rapid.SampledFrom([]affinity.Strategy{affinity.Projection, affinity.Rendezvous}).Draw(t, "strategy"),
	}
	if rapid.Bool().Draw(t, "numbered") {
		cfg.RelaysPerService = rapid.IntRange(cfg.Minimums.PeersPerWorker, 25).Draw(t, "k")
	}
	if rapid.Bool().Draw(t, "placed") {
		for i := range cfg.Relays {
			cfg.Relays[i].Place = anyPlace.Draw(t, "place")
		}
		for i := range cfg.Workers {
			cfg.Workers[i].Place = anyPlace.Draw(t, "place")
		}
	}
	if rapid.Bool().Draw(t, "weighted") {
		for i := range cfg.Workers {
			cfg.Workers[i].Weight = rapid.IntRange(0, affinity.MaxWeight).Draw(t, "weight")
		}
	}
	return cfg
})

// inOneZone is the fleet without places.
func inOneZone(cfg affinity.PlanConfig) affinity.PlanConfig {
	for i := range cfg.Relays {
		cfg.Relays[i].Place = affinity.Place{}
	}
	for i := range cfg.Workers {
		cfg.Workers[i].Place = affinity.Place{}
	}
	return cfg
}

// TestEveryWorkerIsServedWhereverItRuns compares every connection with a dumb account of
// the rules, member by member.
func TestEveryWorkerIsServedWhereverItRuns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := anyFleet.Draw(t, "fleet")
		p, err := affinity.NewPlan(cfg)
		if err != nil {
			t.Fatal(err)
		}
		placeOf := map[string]affinity.Place{}
		for _, r := range cfg.Relays {
			placeOf[r.ID] = r.Place
		}
		for _, w := range cfg.Workers {
			placeOf[w.ID] = w.Place
		}
		// A datacenter in two regions is a mistake, and makes no promise.
		local := func(relay, worker string) bool {
			here := placeOf[relay]
			for _, place := range placeOf {
				if place.Datacenter == here.Datacenter && place != here {
					return false
				}
			}
			return here.Datacenter != "" && here == placeOf[worker]
		}
		connected := map[[2]string]bool{}
		for i, relay := range p.Affine() {
			assignments, err := p.Assignments(i)
			if err != nil {
				t.Fatal(err)
			}
			sum := 0.0
			for _, a := range assignments {
				pair := [2]string{relay, a.Worker}
				if connected[pair] {
					t.Fatalf("%v twice", pair)
				}
				connected[pair] = true
				sum += a.Weight
				if !(a.Weight >= 0) {
					t.Fatalf("%v has the weight %v", pair, a.Weight)
				}
			}
			if math.Abs(sum-1) > 1e-9 {
				t.Fatalf("the weights of %s sum to %v", relay, sum)
			}
			// The workers of its zone up to p, however few they are, and never none.
			own := 0
			for _, worker := range p.Workers() {
				if local(relay, worker) {
					own++
				}
			}
			if len(assignments) < min(cfg.Minimums.PeersPerRelay, own) || len(assignments) == 0 {
				t.Fatalf("%s has %d workers, %d are in its zone", relay, len(assignments), own)
			}
		}
		// Every worker has its relays, and one of its zone if the zone has one.
		m := cfg.Minimums.PeersPerWorker
		for pos, worker := range p.Workers() {
			have, homes, homesThere := 0, 0, 0
			for _, relay := range p.Affine() {
				home := local(relay, worker)
				if home {
					homesThere++
				}
				if connected[[2]string{relay, worker}] {
					have++
					if home {
						homes++
					}
				}
			}
			if have != p.Coverage().PerWorker[pos] || have < min(m, len(p.Affine())) || homes < min(1, homesThere) {
				t.Fatalf("%s (%v) has %d relays, %d of %d in its zone; coverage says %d, wanted at least %d", worker, placeOf[worker], have, homes, homesThere, p.Coverage().PerWorker[pos], m)
			}
		}
	})
}

// A fleet without places is one ring, and so is one that is all in one place:
// the connections are the same.
func TestOnePlaceForAllChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := inOneZone(anyFleet.Draw(t, "fleet"))
		place := anyPlace.Draw(t, "the place")
		before, err := affinity.NewPlan(cfg)
		if err != nil {
			t.Fatal(err)
		}
		for i := range cfg.Relays {
			cfg.Relays[i].Place = place
		}
		for i := range cfg.Workers {
			cfg.Workers[i].Place = place
		}
		after, err := affinity.NewPlan(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := samePlan(before, after); err != nil {
			t.Fatal(err)
		}
	})
}

// A datacenter whose traffic fits its workers keeps its connections to itself. One that has too
// few workers takes in the region, and sends the rest to whichever has room.
func TestADatacenterThatHasEnoughKeepsToItself(t *testing.T) {
	cfg := threeDatacenters()
	p := mustPlan(t, cfg)
	for pair := range connections(t, p) {
		relay, worker := pair[0][2:5], pair[1][2:5]
		if relay == "fra" && worker == "par" || relay == "nyc" && worker != "nyc" {
			t.Errorf("%s is connected to %s", pair[0], pair[1])
		}
	}
	seen := map[string]bool{}
	for pair := range connections(t, p) {
		seen[pair[0][2:5]+" "+pair[1][2:5]] = true
	}
	for _, want := range []string{"fra fra", "par fra", "par par", "par nyc", "nyc nyc"} {
		if !seen[want] {
			t.Errorf("no relay to worker connection %q, only %v", want, seen)
		}
	}
}

func TestALossInOneDatacenterMovesNoRangeInAnotherThatTakesNoneOfItsTraffic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := anyFleet.Draw(t, "fleet")
		cfg.RelaysPerService, cfg.Minimums, cfg.PeersPerTier, cfg.Strategy, cfg.ZoneSlack = 1000, affinity.DefaultMinimums, 3, affinity.Projection, 10
		there := affinity.Place{Datacenter: "fra", Region: "eu"}
		const relays, workers = 6, 12 // of the datacenter that has enough
		cfg.Relays, cfg.Workers = someRelays(relays+rapid.IntRange(1, 12).Draw(t, "others")), someWorkers(2*workers)
		for i := range cfg.Relays {
			cfg.Relays[i].Place = affinity.Place{Datacenter: "par", Region: "eu"}
			if i < relays {
				cfg.Relays[i].Place = there
			}
		}
		for i := range cfg.Workers {
			cfg.Workers[i].Place = affinity.Place{Datacenter: "par", Region: "eu"}
			if i < workers {
				cfg.Workers[i].Place = there
			}
		}
		inside := func() []string {
			p, err := affinity.NewPlan(cfg)
			if err != nil {
				t.Fatal(err)
			}
			var out []string
			for i, relay := range p.Affine() {
				assignments, err := p.Assignments(i)
				if err != nil {
					t.Fatal(err)
				}
				for _, a := range assignments {
					if slices.Contains(relayIDs(relays), relay) && slices.Contains(workerIDs(workers), a.Worker) {
						out = append(out, relay+" "+a.Worker)
					}
				}
			}
			slices.Sort(out)
			return out
		}
		before := inside()
		cfg.Relays = cfg.Relays[:rapid.IntRange(relays, len(cfg.Relays)-1).Draw(t, "left")]
		if after := inside(); !slices.Equal(before, after) {
			t.Fatalf("%v before, %v after", before, after)
		}
	})
}

// HS-D3: union, not replacement. The number of peers that makes a tier enough decides.
func TestADatacenterWithTooFewWorkersTakesInTheNextTier(t *testing.T) {
	cfg := affinity.PlanConfig{Service: "billing", Relays: []affinity.Relay{{ID: "r", Place: affinity.Place{Datacenter: "fra", Region: "eu"}}}}
	for i := range 9 {
		w := affinity.Worker{ID: fmt.Sprint("w", i), Place: affinity.Place{Datacenter: "fra", Region: "eu"}}
		if i >= 2 {
			w.Datacenter = "ams"
		}
		if i >= 7 {
			w.Region = "us"
		}
		cfg.Workers = append(cfg.Workers, w)
	}
	// Another relay far away, so that workers elsewhere are not this one's to serve.
	for i := range 5 {
		cfg.Relays = append(cfg.Relays, affinity.Relay{ID: fmt.Sprint("other", i), Place: affinity.Place{Datacenter: "ams", Region: "us"}})
	}
	for perTier, want := range map[int]int{1: 2, 2: 2, 3: 7, 7: 7, 8: 9} {
		cfg.PeersPerTier = perTier
		p := mustPlan(t, cfg)
		i, _ := p.Index("r")
		reach := 0
		for _, worker := range p.Workers() {
			if p.Explain("r", worker).Home {
				reach++
			}
		}
		if reach != want {
			t.Errorf("%d peers per tier: relay %d is at home with %d workers, want %d", perTier, i, reach, want)
		}
	}
}

// HS-D6: nothing of a place is remembered.
func TestAWorkerThatMovesChangesItsRing(t *testing.T) {
	cfg := threeDatacenters()
	if e := mustPlan(t, cfg).Explain("r-nyc-0", "w-fra-0"); e.Tier != "global" || e.Distance != -1 {
		t.Errorf("before the move: %+v", e)
	}
	at := slices.IndexFunc(cfg.Workers, func(w affinity.Worker) bool { return w.ID == "w-fra-0" })
	cfg.Workers[at].Place = affinity.Place{Datacenter: "nyc", Region: "us"}
	if e := mustPlan(t, cfg).Explain("r-nyc-0", "w-fra-0"); e.Tier != "same_dc" || !e.Connected {
		t.Errorf("after the move: %+v", e)
	}
}

// HB-B4.
func TestASkippedRelayServesOtherServicesOnly(t *testing.T) {
	cfg := affinity.PlanConfig{Service: "billing", Relays: someRelays(12), Workers: someWorkers(50), RelaysPerService: 5}
	for _, source := range []affinity.IndexSource{affinity.IndexRank, affinity.IndexSlot} {
		cfg.IndexSource, cfg.Skip = source, nil
		before := mustPlan(t, cfg).Affine()
		cfg.Skip = []string{before[1], "absent"}
		after := mustPlan(t, cfg).Affine()
		if slices.Contains(after, before[1]) || len(after) != 5 {
			t.Errorf("%s: skipping %s of %q leaves %q", source, before[1], before, after)
		}
		if kept := len(slices.DeleteFunc(slices.Clone(after), func(id string) bool { return !slices.Contains(before, id) })); kept != 4 {
			t.Errorf("%s: %q became %q: %d kept, want all others", source, before, after, kept)
		}
	}
}
