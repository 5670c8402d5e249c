package affinity_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/ringway/ringway/affinity"
	"pgregory.net/rapid"
)

// drawChange changes one thing that a plan depends on.
func drawChange(t *rapid.T, cfg affinity.PlanConfig) affinity.PlanConfig {
	cfg.Relays, cfg.Workers, cfg.Skip = slices.Clone(cfg.Relays), slices.Clone(cfg.Workers), slices.Clone(cfg.Skip)
	place := affinity.Place{Datacenter: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "datacenter")}
	relay, worker := rapid.IntRange(0, len(cfg.Relays)-1).Draw(t, "relay"), rapid.IntRange(0, len(cfg.Workers)-1).Draw(t, "worker")
	switch rapid.IntRange(-4, 14).Draw(t, "change") {
	case -4, -3: // one of another name
		cfg.Relays[relay].ID = fmt.Sprint("renamed-", rapid.IntRange(0, 1000).Draw(t, "number"))
	case -2, 0:
		for i := range rapid.IntRange(1, 4).Draw(t, "joining") {
			cfg.Relays = append(cfg.Relays, affinity.Relay{ID: fmt.Sprint("new-", relay, "-", i, "-", len(cfg.Relays)), Place: cfg.Relays[relay].Place})
		}
	case -1, 1:
		for range rapid.IntRange(1, 4).Draw(t, "leaving") {
			if relay < len(cfg.Relays) && len(cfg.Relays) > 1 {
				cfg.Relays = slices.Delete(cfg.Relays, relay, relay+1)
			}
		}
	case 2:
		cfg.Relays[relay].Traffic = rapid.IntRange(0, 1000).Draw(t, "traffic")
	case 3:
		cfg.Relays[relay].Place = place
	case 4:
		slices.Reverse(cfg.Relays)
	case 5:
		cfg.Skip = []string{cfg.Relays[relay].ID}
	case 6, 7:
		cfg.Workers = append(cfg.Workers, affinity.Worker{ID: fmt.Sprint("new-", rapid.IntRange(0, 1000).Draw(t, "number")), Place: place})
	case 8, 9:
		if len(cfg.Workers) > 1 {
			cfg.Workers = slices.Delete(cfg.Workers, worker, worker+1)
		}
	case 10:
		cfg.Workers[worker].Weight = rapid.IntRange(0, 100).Draw(t, "weight")
	case 11:
		cfg.Workers[worker].Place = place
	case 12:
		cfg.Service = rapid.SampledFrom([]string{"s", "other"}).Draw(t, "service")
	case 13:
		cfg.Strategy = rapid.SampledFrom([]affinity.Strategy{affinity.Projection, affinity.Rendezvous}).Draw(t, "strategy")
	default:
		cfg.RelaysPerService = rapid.SampledFrom([]int{0, 10, 40}).Draw(t, "relays per service")
		cfg.WholeRange = rapid.Bool().Draw(t, "whole")
		cfg.IndexSource = rapid.SampledFrom([]affinity.IndexSource{affinity.IndexSlot, affinity.IndexRank}).Draw(t, "index")
		cfg.Minimums = rapid.SampledFrom([]affinity.Minimums{{}, {PeersPerWorker: 4, PeersPerRelay: 2}}).Draw(t, "minimums")
	}
	if rapid.Bool().Draw(t, "in order") {
		cfg.Workers, cfg.WorkersOrdered = inRingOrder(cfg.Service, cfg.Workers), true
	} else {
		cfg.WorkersOrdered = false
	}
	return cfg
}

// Whatever changes: a relay that has an earlier plan plans as one that has just started.
func TestAPlanFromAnEarlierOneIsThePlanFromScratch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := affinity.PlanConfig{
			Service: "s", Relays: someRelays(rapid.SampledFrom([]int{1, 5, 35, 41, 60}).Draw(t, "relays")), Workers: someWorkers(rapid.IntRange(1, 300).Draw(t, "workers")),
			RelaysPerService: rapid.SampledFrom([]int{0, 33, 40}).Draw(t, "relays per service"),
		}
		earlier := []*affinity.Plan{nil}
		for range rapid.IntRange(1, 6).Draw(t, "changes") {
			cfg = drawChange(t, cfg)
			cfg.Previous = nil
			want, wantErr := affinity.NewPlan(cfg)
			cfg.Previous = rapid.SampledFrom(earlier).Draw(t, "earlier")
			got, err := affinity.NewPlan(cfg)
			if fmt.Sprint(err) != fmt.Sprint(wantErr) {
				t.Fatalf("error %v, want %v", err, wantErr)
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("the plan differs: affine %q, want %q", got.Affine(), want.Affine())
			}
			if err != nil {
				return
			}
			earlier = append(earlier, got)
		}
	})
}

// Workers in another order would give other relays another plan, so the order is checked whatever
// is known of it.
func TestAnEarlierPlanHidesNoWrongOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := affinity.PlanConfig{Service: "s", Relays: someRelays(5), Workers: inRingOrder("s", someWorkers(rapid.IntRange(1, 40).Draw(t, "workers"))), WorkersOrdered: true}
		earlier, err := affinity.NewPlan(cfg)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Workers = slices.Clone(cfg.Workers)
		for range rapid.IntRange(1, 4).Draw(t, "changes") {
			at := rapid.IntRange(0, len(cfg.Workers)-1).Draw(t, "at")
			other := rapid.IntRange(0, len(cfg.Workers)-1).Draw(t, "other")
			switch rapid.IntRange(0, 4).Draw(t, "change") {
			case 0:
				cfg.Workers[at], cfg.Workers[other] = cfg.Workers[other], cfg.Workers[at]
			case 1:
				cfg.Workers = slices.Insert(cfg.Workers, at, cfg.Workers[other])
			case 2:
				cfg.Workers = slices.Insert(cfg.Workers, at, affinity.Worker{ID: rapid.StringMatching(`(new-[0-9]{1,2})?`).Draw(t, "id")})
			case 3:
				if len(cfg.Workers) > 1 {
					cfg.Workers = slices.Delete(cfg.Workers, at, at+1)
				}
			case 4:
				cfg.Workers[at].ID = fmt.Sprint("worker-", rapid.IntRange(0, 50).Draw(t, "number"))
			}
		}
		cfg.Previous = nil
		want, wantErr := affinity.NewPlan(cfg)
		cfg.Previous = earlier
		got, err := affinity.NewPlan(cfg)
		if fmt.Sprint(err) != fmt.Sprint(wantErr) || !reflect.DeepEqual(got, want) {
			t.Fatalf("error %v, want %v, for %v", err, wantErr, cfg.Workers)
		}
	})
}

// Each place has slots of its own, so the relays of an earlier plan do not stand in the order of the
// slots of all.
func TestAPlanOfSeveralPlacesFromAnEarlierOneIsThePlanFromScratch(t *testing.T) {
	cfg := affinity.PlanConfig{Service: "s", Relays: someRelays(60), Workers: someWorkers(300), RelaysPerService: 40}
	for i := range cfg.Relays {
		cfg.Relays[i].Place.Datacenter = []string{"a", "b", "c"}[i%3]
	}
	earlier, err := affinity.NewPlan(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for gone := range cfg.Relays {
		later := cfg
		later.Relays = slices.Delete(slices.Clone(cfg.Relays), gone, gone+1)
		want, err := affinity.NewPlan(later)
		if err != nil {
			t.Fatal(err)
		}
		later.Previous = earlier
		if got, err := affinity.NewPlan(later); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("without %s: another plan (%v)", cfg.Relays[gone].ID, err)
		}
	}
}

// The number of slots that a place has at least follows from the minimum, also where their sum is set.
func TestAPlanWithAnotherMinimumThanTheEarlierOneIsThePlanFromScratch(t *testing.T) {
	cfg := affinity.PlanConfig{Service: "s", Relays: someRelays(100), Workers: someWorkers(300), RelaysPerService: 40}
	for i := range cfg.Relays {
		cfg.Relays[i].Place.Datacenter = "a"
		if i < 6 {
			cfg.Relays[i].Place.Datacenter = "b"
		}
	}
	for i := range cfg.Workers {
		cfg.Workers[i].Place.Datacenter = []string{"a", "b"}[i%2]
	}
	earlier := mustPlan(t, cfg)
	cfg.Minimums = affinity.Minimums{PeersPerWorker: 4, PeersPerRelay: 3}
	want := mustPlan(t, cfg)
	cfg.Previous = earlier
	if got := mustPlan(t, cfg); !reflect.DeepEqual(got, want) || slices.Equal(got.Affine(), earlier.Affine()) {
		t.Errorf("%v from the earlier plan, %v from scratch, %v before", got.Affine(), want.Affine(), earlier.Affine())
	}
}

// The first worker of the ring decides which place comes first among those of the workers.
func TestTheOrderInWhichPlacesHaveWorkersChangesNoPlan(t *testing.T) {
	cfg := affinity.PlanConfig{Service: "s", Relays: someRelays(60), Workers: someWorkers(300), RelaysPerService: 40}
	for i := range cfg.Relays {
		cfg.Relays[i].Place.Datacenter = []string{"a", "b"}[i%2]
	}
	for i := range cfg.Workers {
		cfg.Workers[i].Place.Datacenter = []string{"a", "b"}[i%2]
	}
	earlier := mustPlan(t, cfg)
	cfg.Workers = slices.Clone(cfg.Workers)
	for i := range cfg.Workers {
		cfg.Workers[i].Place.Datacenter = []string{"b", "a"}[i%2]
	}
	want := mustPlan(t, cfg)
	cfg.Previous = earlier
	if got := mustPlan(t, cfg); !reflect.DeepEqual(got, want) {
		t.Error("another plan from an earlier one")
	}
}
