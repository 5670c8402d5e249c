package peering_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/peering"
	"pgregory.net/rapid"
)

func ids(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%s%03d", prefix, i)
	}
	return out
}

// connections returns which relay is connected to which worker, as "relay worker".
func connections(t testing.TB, plan *affinity.Plan) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for i, relay := range plan.Affine() {
		row, err := plan.Assignments(i)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range row {
			out[relay+" "+a.Worker] = true
		}
	}
	return out
}

func TestWhileAMemberIsAbsentNoOtherMoves(t *testing.T) {
	relays, workers := affinity.Relays(ids("r", 20)), affinity.Workers(ids("w", 200))
	cfg := affinity.PlanConfig{Service: "s", Relays: relays, Workers: workers, RelaysPerService: 20}
	before, err := affinity.NewPlan(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, gone := range []struct {
		name    string
		present affinity.PlanConfig
		absent  peering.Absent
	}{
		{"a relay", affinity.PlanConfig{Relays: relays[1:], Workers: workers}, peering.Absent{Relays: relays[:1]}},
		{"a worker", affinity.PlanConfig{Relays: relays, Workers: workers[1:]}, peering.Absent{Workers: workers[:1]}},
		{"one of each", affinity.PlanConfig{Relays: relays[1:], Workers: workers[1:]}, peering.Absent{Relays: relays[:1], Workers: workers[:1]}},
	} {
		gone.present.Service, gone.present.RelaysPerService = "s", 20
		during, err := peering.Plan(gone.present, gone.absent)
		if err != nil {
			t.Fatal(err)
		}
		if was, is := connections(t, before), connections(t, during); !equal(was, is) {
			t.Errorf("%s is absent: connections moved", gone.name)
		}
		without, err := peering.Plan(gone.present, peering.Absent{})
		if err != nil {
			t.Fatal(err)
		}
		if was, is := connections(t, before), connections(t, without); equal(was, is) {
			t.Errorf("%s is gone for good: nothing moved", gone.name)
		}
	}
}

func equal(a, b map[string]bool) bool {
	if len(a) != len(b) {
		return false
	}
	for k := range a {
		if !b[k] {
			return false
		}
	}
	return true
}

func TestAServiceWhoseWorkersAreAllReplacedIsServedByTheNewOnes(t *testing.T) {
	plan, err := peering.Plan(affinity.PlanConfig{Service: "s", Relays: affinity.Relays(ids("r", 3)), Workers: affinity.Workers(ids("new", 2))},
		peering.Absent{Workers: affinity.Workers(ids("old", 30))})
	if err != nil {
		t.Fatal(err)
	}
	if got := plan.Coverage(); got.MinPerRelay < 2 {
		t.Errorf("a relay has %d workers: want the 2 that are there", got.MinPerRelay)
	}
}

// Whatever is gone, those who are there stay connected: m-1 relays for every worker
// and p workers for every relay, as far as there are that many.
func TestTheAbsentNeverCostMoreThanOneRelayOfAWorker(t *testing.T) {
	kept := 0
	rapid.Check(t, func(rt *rapid.T) {
		relays := affinity.Relays(ids("r", rapid.IntRange(1, 12).Draw(rt, "relays")))
		workers := affinity.Workers(ids("w", rapid.IntRange(1, 40).Draw(rt, "workers")))
		goneRelays, goneWorkers := rapid.IntRange(0, len(relays)-1).Draw(rt, "gone relays"), rapid.IntRange(0, len(workers)-1).Draw(rt, "gone workers")
		cfg := affinity.PlanConfig{
			Service: "s", Relays: relays[goneRelays:], Workers: workers[goneWorkers:], RelaysPerService: max(3, len(relays)),
			IndexSource: rapid.SampledFrom([]affinity.IndexSource{affinity.IndexRank, affinity.IndexSlot}).Draw(rt, "index"),
			Strategy:    rapid.SampledFrom([]affinity.Strategy{affinity.Projection, affinity.Rendezvous}).Draw(rt, "strategy"),
		}
		plan, err := peering.Plan(cfg, peering.Absent{Relays: relays[:goneRelays], Workers: workers[:goneWorkers]})
		if err != nil {
			rt.Fatal(err)
		}
		if len(plan.Affine()) > len(cfg.Relays) || len(plan.Workers()) > len(cfg.Workers) {
			kept++
		}
		isThere := func(id string) bool {
			return slices.ContainsFunc(cfg.Relays, func(r affinity.Relay) bool { return r.ID == id })
		}
		perWorker := map[string]int{}
		for i, relay := range plan.Affine() {
			row, err := plan.Assignments(i)
			if err != nil {
				rt.Fatal(err)
			}
			own := 0
			for _, a := range row {
				if slices.ContainsFunc(cfg.Workers, func(w affinity.Worker) bool { return w.ID == a.Worker }) {
					own++
					if isThere(relay) {
						perWorker[a.Worker]++
					}
				}
			}
			if want := min(3, len(cfg.Workers)); isThere(relay) && own < want {
				rt.Errorf("relay %s has %d workers: want %d", relay, own, want)
			}
		}
		for _, w := range cfg.Workers {
			if want := min(2, len(cfg.Relays)); perWorker[w.ID] < want {
				rt.Errorf("worker %s has %d relays: want %d", w.ID, perWorker[w.ID], want)
			}
		}
	})
	if kept == 0 {
		t.Error("no absent member ever counted: the property says nothing")
	}
}

// Of the absent members as many count as do no harm, and those that were there last.
func TestNoAbsentMemberIsLeftOutWithoutNeed(t *testing.T) {
	whole, part := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		relays := affinity.Relays(ids("r", rapid.IntRange(1, 14).Draw(rt, "relays")))
		workers := affinity.Workers(ids("w", rapid.IntRange(1, 40).Draw(rt, "workers")))
		goneRelays := rapid.IntRange(0, min(3, len(relays)-1)).Draw(rt, "gone relays")
		goneWorkers := rapid.IntRange(0, len(workers)-1).Draw(rt, "gone workers")
		cfg := affinity.PlanConfig{
			Service: "s", Relays: relays[goneRelays:], Workers: workers[goneWorkers:],
			RelaysPerService: rapid.IntRange(3, max(3, len(relays))).Draw(rt, "relays per service"),
			Minimums:         affinity.Minimums{PeersPerWorker: 3, PeersPerRelay: rapid.IntRange(1, 6).Draw(rt, "peers per relay")},
			Strategy:         rapid.SampledFrom([]affinity.Strategy{affinity.Projection, affinity.Rendezvous}).Draw(rt, "strategy"),
		}
		absent := peering.Absent{Relays: relays[:goneRelays], Workers: workers[:goneWorkers]}
		got, err := peering.Plan(cfg, absent)
		if err != nil {
			rt.Fatal(err)
		}
		for halved := false; ; halved = true {
			all := cfg
			all.Relays, all.Workers = slices.Concat(absent.Relays, cfg.Relays), slices.Concat(absent.Workers, cfg.Workers)
			want, err := affinity.NewPlan(all)
			if err != nil {
				rt.Fatal(err)
			}
			if len(absent.Relays)+len(absent.Workers) > 0 && harms(rt, want, cfg) {
				absent.Relays, absent.Workers = laterHalf(absent.Relays), laterHalf(absent.Workers)
				continue
			}
			if was, is := connections(t, want), connections(t, got); !equal(was, is) {
				rt.Errorf("with %d relays and %d workers absent the plan differs", len(absent.Relays), len(absent.Workers))
			}
			if !halved && goneRelays+goneWorkers > 0 {
				whole++
			} else if halved && len(absent.Relays)+len(absent.Workers) > 0 {
				part++
			}
			return
		}
	})
	if whole == 0 || part == 0 {
		t.Errorf("all the absent counted %d times, a part of them %d times: the property says too little", whole, part)
	}
}

// One relay in each of three zones: it alone sends to the workers of its zone, the others hold them
// as standbys. While it restarts, these send to all workers.
func TestWorkersWhoseOnlySenderIsAbsentGetRequestsFromTheOthers(t *testing.T) {
	for _, strategy := range []affinity.Strategy{affinity.Projection, affinity.Rendezvous} {
		cfg := affinity.PlanConfig{Service: "s", Strategy: strategy}
		for _, zone := range []string{"a", "b", "c"} {
			place := affinity.Place{Datacenter: zone, Region: "r"}
			cfg.Relays = append(cfg.Relays, affinity.Relay{ID: "relay-" + zone, Place: place})
			for i := range 4 {
				cfg.Workers = append(cfg.Workers, affinity.Worker{ID: fmt.Sprint("worker-", zone, i), Place: place})
			}
		}
		absent := peering.Absent{Relays: cfg.Relays[2:]}
		cfg.Relays = cfg.Relays[:2]
		plan, err := peering.Plan(cfg, absent)
		if err != nil {
			t.Fatal(err)
		}
		sent := map[string]float64{}
		for i, relay := range plan.Affine() {
			row, err := plan.Assignments(i)
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range row {
				if relay != "relay-c" {
					sent[a.Worker] += a.Weight
				}
			}
		}
		for _, w := range cfg.Workers {
			if !(sent[w.ID] > 0) {
				t.Errorf("%s: no relay that is there sends to %s", strategy, w.ID)
			}
		}
	}
}

func laterHalf[M any](members []M) []M { return members[len(members)-len(members)/2:] }

// harms reports whether a plan leaves a member of cfg with too few others of cfg.
func harms(rt *rapid.T, plan *affinity.Plan, cfg affinity.PlanConfig) bool {
	relays, workers := map[string]bool{}, map[string]bool{}
	for _, r := range cfg.Relays {
		relays[r.ID] = true
	}
	for _, w := range cfg.Workers {
		workers[w.ID] = true
	}
	serving, without := 0, map[string]int{} // connections of each worker to relays that are not there
	for i, relay := range plan.Affine() {
		row, err := plan.Assignments(i)
		if err != nil {
			rt.Fatal(err)
		}
		there := 0
		for _, a := range row {
			switch {
			case !workers[a.Worker]:
			case !relays[relay]:
				without[a.Worker]++
			default:
				there++
			}
			if without[a.Worker] > 1 {
				return true
			}
		}
		if relays[relay] {
			serving++
			if there < min(cfg.Minimums.PeersPerRelay, len(cfg.Workers), len(row)) {
				return true
			}
		}
	}
	return serving == 0
}

func TestWithoutARelayOrWithoutAWorkerThereIsNoPlan(t *testing.T) {
	one := affinity.PlanConfig{Service: "s", Relays: affinity.Relays(ids("r", 1)), Workers: affinity.Workers(ids("w", 1))}
	absent := peering.Absent{Relays: affinity.Relays(ids("a", 1)), Workers: affinity.Workers(ids("b", 1))}
	for want, cfg := range map[error]affinity.PlanConfig{
		affinity.ErrNoRelays:  {Service: "s", Workers: one.Workers},
		affinity.ErrNoWorkers: {Service: "s", Relays: one.Relays},
	} {
		if _, err := peering.Plan(cfg, absent); !errors.Is(err, want) {
			t.Errorf("error is %v: want %v, although one of each is absent", err, want)
		}
	}
	one.Strategy = "none"
	if _, err := peering.Plan(one, absent); err == nil {
		t.Error("a setting out of bounds is accepted while members are absent")
	}
}
