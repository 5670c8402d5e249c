package affinity_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/ring"
	"pgregory.net/rapid"
)

func workerIDs(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("worker-%d", i)
	}
	return ids
}

func mustPlan(t testing.TB, cfg affinity.PlanConfig) *affinity.Plan {
	t.Helper()
	p, err := affinity.NewPlan(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func someRelays(n int) []affinity.Relay { return affinity.Relays(relayIDs(n)) }

func someWorkers(n int) []affinity.Worker { return affinity.Workers(workerIDs(n)) }

// inRingOrder returns the workers as WorkersOrdered wants them.
func inRingOrder(service string, workers []affinity.Worker) []affinity.Worker {
	byID := map[string]affinity.Worker{}
	var ids []string
	for _, w := range workers {
		byID[w.ID] = w
		ids = append(ids, w.ID)
	}
	var out []affinity.Worker
	for _, id := range ring.Order(service, ids) {
		out = append(out, byID[id])
	}
	return out
}

// samePlan compares everything that a plan shows.
func samePlan(a, b *affinity.Plan) error {
	if a.Service() != b.Service() || a.Strategy() != b.Strategy() || a.Fallback() != b.Fallback() ||
		!slices.Equal(a.Affine(), b.Affine()) || !slices.Equal(a.Workers(), b.Workers()) {
		return fmt.Errorf("%q %v %q %q %q\nis not\n%q %v %q %q %q", a.Service(), a.Strategy(), a.Fallback(), a.Affine(), a.Workers(),
			b.Service(), b.Strategy(), b.Fallback(), b.Affine(), b.Workers())
	}
	for i := range a.Affine() {
		x, errX := a.Assignments(i)
		y, errY := b.Assignments(i)
		if errX != nil || errY != nil || !slices.Equal(x, y) {
			return fmt.Errorf("relay %d: %v, %v\nis not\n%v, %v", i, x, errX, y, errY)
		}
	}
	return nil
}

// Every relay computes alone; what it hears first must not matter (HB-A1).
func TestTheOrderOfMembersDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := anyFleet.Draw(t, "fleet")
		a, err := affinity.NewPlan(cfg)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Relays = rapid.Permutation(cfg.Relays).Draw(t, "relays permuted")
		cfg.Workers = rapid.Permutation(cfg.Workers).Draw(t, "workers permuted")
		relays, workers := slices.Clone(cfg.Relays), slices.Clone(cfg.Workers)
		b, err := affinity.NewPlan(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := samePlan(a, b); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(relays, cfg.Relays) || !slices.Equal(workers, cfg.Workers) {
			t.Fatal("the input was changed")
		}
		cfg.Workers, cfg.WorkersOrdered = inRingOrder(cfg.Service, cfg.Workers), true
		c, err := affinity.NewPlan(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := samePlan(a, c); err != nil {
			t.Fatalf("with workers in order already: %v", err)
		}
	})
}

func TestAPlanIsItsShapeWithNames(t *testing.T) {
	shape := affinity.Shape{Relays: 7, Workers: 97, Minimums: affinity.DefaultMinimums}
	for _, source := range []affinity.IndexSource{affinity.IndexRank, affinity.IndexSlot} {
		p := mustPlan(t, affinity.PlanConfig{Service: "billing", Relays: someRelays(30), Workers: someWorkers(97),
			RelaysPerService: 7, IndexSource: source})
		if len(p.Affine()) != 7 || p.Strategy() != affinity.Projection || p.Fallback() != "" {
			t.Fatalf("%s: %d affine relays, strategy %v %s", source, len(p.Affine()), p.Strategy(), p.Fallback())
		}
		for i, relay := range p.Affine() {
			if index, ok := p.Index(relay); !ok || index != i {
				t.Errorf("%s: the index of %s is %d, %v; want %d", source, relay, index, ok, i)
			}
			want, err := shape.Range(i)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := p.Ranges(i); err != nil || !slices.Equal(got, []affinity.Range{want}) {
				t.Errorf("%s: relay %d has the ranges %v, %v; want %v", source, i, got, err, want)
			}
			weights, err := shape.AppendWeights(nil, i)
			if err != nil {
				t.Fatal(err)
			}
			assignments, err := p.Assignments(i)
			if err != nil {
				t.Fatal(err)
			}
			j := 0
			for pos := range want.All() {
				if want := (affinity.Assignment{Worker: p.Workers()[pos], Weight: weights[j]}); assignments[j] != want {
					t.Errorf("%s: relay %d: assignment %d is %v, want %v", source, i, j, assignments[j], want)
				}
				j++
			}
			if j != len(assignments) {
				t.Errorf("%s: relay %d: %d assignments for %v", source, i, len(assignments), want)
			}
		}
		want, err := shape.Coverage()
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Coverage(); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: coverage %+v, want %+v", source, got, want)
		}
	}
}

func TestBothIndexSourcesPickTheSameRelays(t *testing.T) {
	for _, relays := range []int{1, 5, 10, 11, 40} {
		cfg := affinity.PlanConfig{Service: "billing", Relays: someRelays(relays), RelaysPerService: 10, Workers: someWorkers(20), IndexSource: affinity.IndexRank}
		byRank := mustPlan(t, cfg).Affine()
		cfg.IndexSource = affinity.IndexSlot
		bySlot := mustPlan(t, cfg).Affine()
		if !slices.Equal(bySlot, affinity.Slots("billing", 10, relayIDs(relays))) {
			t.Errorf("%d relays: slots give %q, want those of Slots", relays, bySlot)
		}
		if !slices.Equal(byRank, ring.Order("billing", bySlot)) {
			t.Errorf("%d relays: ranks give %q, want the ring order of %q", relays, byRank, bySlot)
		}
	}
}

func connections(t *testing.T, p *affinity.Plan) map[[2]string]bool {
	out := map[[2]string]bool{}
	for i, relay := range p.Affine() {
		assignments, err := p.Assignments(i)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range assignments {
			out[[2]string{relay, a.Worker}] = true
		}
	}
	return out
}

// moved returns the number of connections closed and opened.
func moved(before, after map[[2]string]bool) int {
	n := 0
	for c := range before {
		if !after[c] {
			n++
		}
	}
	for c := range after {
		if !before[c] {
			n++
		}
	}
	return n
}

// 50 relays of 200, 1000 workers: the lower bound is 60 closed and 60 opened, and by rank
// about two thirds of the workers change a connection at each end.
func TestSlotIndexesKeepConnectionsWhenARelayLeaves(t *testing.T) {
	mean := map[affinity.IndexSource]float64{}
	for _, source := range []affinity.IndexSource{affinity.IndexRank, affinity.IndexSlot} {
		cfg := affinity.PlanConfig{Service: "billing", Relays: someRelays(200), Workers: someWorkers(1000),
			RelaysPerService: 50, IndexSource: source}
		plan := mustPlan(t, cfg)
		before := connections(t, plan)
		const trials = 10
		for _, gone := range plan.Affine()[:trials] {
			cfg.Relays = slices.DeleteFunc(someRelays(200), func(r affinity.Relay) bool { return r.ID == gone })
			mean[source] += float64(moved(before, connections(t, mustPlan(t, cfg)))) / trials
		}
	}
	t.Logf("connections moved when a relay leaves: %v", mean)
	if mean[affinity.IndexSlot] < 120 || mean[affinity.IndexSlot] > 200 {
		t.Errorf("by slot %.0f connections move, want 120 to 200", mean[affinity.IndexSlot])
	}
	if mean[affinity.IndexRank] < 2*mean[affinity.IndexSlot] {
		t.Errorf("by rank only %.0f connections move: the documentation says that slots are better", mean[affinity.IndexRank])
	}
}

// A worker that joins or leaves shifts a boundary by at most one place (HB-A11).
func TestOneWorkerMoreMovesFewConnections(t *testing.T) {
	cfg := affinity.PlanConfig{Service: "billing", Relays: someRelays(10), Workers: someWorkers(500)}
	before := connections(t, mustPlan(t, cfg))
	cfg.Workers = someWorkers(501)
	n := moved(before, connections(t, mustPlan(t, cfg)))
	// Its own 3, and at most one place at each of 20 range ends.
	if n < 3 || n > 3+20 {
		t.Errorf("%d of %d connections moved, want 3 to 23", n, len(before))
	}
}

// One rack must not be one relay's whole range.
func TestWorkersOfOneRackAreSpreadOverTheRelays(t *testing.T) {
	var workers []string
	for i := range 1000 {
		workers = append(workers, fmt.Sprintf("10.0.%d.%d:7401", i/100, i%100))
	}
	p := mustPlan(t, affinity.PlanConfig{Service: "billing", Relays: someRelays(50), Workers: affinity.Workers(workers), RelaysPerService: 50})
	for i := range p.Affine() {
		assignments, err := p.Assignments(i)
		if err != nil {
			t.Fatal(err)
		}
		lost := 0
		for _, a := range assignments {
			if strings.HasPrefix(a.Worker, "10.0.4.") {
				lost++
			}
		}
		if share := float64(lost) / float64(len(assignments)); share > 0.35 {
			t.Errorf("relay %d has %.0f %% of its workers in a rack that holds 10 %% of all", i, 100*share)
		}
	}
}

func TestARelayOutsideTheServiceHasNoIndex(t *testing.T) {
	p := mustPlan(t, affinity.PlanConfig{Service: "billing", Relays: someRelays(3), Workers: someWorkers(7)})
	if i, ok := p.Index("relay-99"); ok {
		t.Errorf("an unknown relay has index %d", i)
	}
	for _, i := range []int{-1, 3} {
		_, rangesErr := p.Ranges(i)
		_, assignmentsErr := p.Assignments(i)
		for _, err := range []error{rangesErr, assignmentsErr} {
			if err == nil || !strings.Contains(err.Error(), `"billing"`) || !strings.Contains(err.Error(), "0 to 2") {
				t.Errorf("index %d: error %v", i, err)
			}
		}
	}
}

func TestBadPlansAreRefused(t *testing.T) {
	good := func() affinity.PlanConfig {
		return affinity.PlanConfig{Service: "billing", Relays: someRelays(3), Workers: someWorkers(7)}
	}
	for _, c := range []struct {
		name   string
		change func(*affinity.PlanConfig)
		says   string
		is     error
	}{
		{"no relays", func(c *affinity.PlanConfig) { c.Relays = nil }, "7 workers", affinity.ErrNoRelays},
		{"no workers", func(c *affinity.PlanConfig) { c.Workers = nil }, "3 relays", affinity.ErrNoWorkers},
		{"relay twice", func(c *affinity.PlanConfig) { c.Relays = affinity.Relays([]string{"a", "b", "a"}) }, `relay "a" is listed twice`, nil},
		{"worker twice", func(c *affinity.PlanConfig) { c.Workers = affinity.Workers([]string{"a", "b", "a"}) }, `worker "a" is listed twice`, nil},
		{"empty relay", func(c *affinity.PlanConfig) { c.Relays = affinity.Relays([]string{"a", ""}) }, "id of a relay is empty", nil},
		{"empty worker", func(c *affinity.PlanConfig) { c.Workers = affinity.Workers([]string{"a", ""}) }, "id of a worker is empty", nil},
		{"empty ordered worker", func(c *affinity.PlanConfig) { c.Workers, c.WorkersOrdered = affinity.Workers([]string{""}), true }, "id of a worker is empty", nil},
		{"out of order", func(c *affinity.PlanConfig) {
			c.Workers = affinity.Workers(ring.Order("other", workerIDs(7)))
			c.WorkersOrdered = true
		}, "are not in ring order", nil},
		{"ordered twice", func(c *affinity.PlanConfig) {
			c.Workers, c.WorkersOrdered = affinity.Workers([]string{"a", "a"}), true
		}, "or one is repeated", nil},
		{"minimums", func(c *affinity.PlanConfig) { c.Minimums = affinity.Minimums{PeersPerWorker: 2, PeersPerRelay: 3} }, "per worker 2", nil},
		{"half the minimums", func(c *affinity.PlanConfig) { c.Minimums = affinity.Minimums{PeersPerWorker: 3} }, "per relay 0", nil},
		{"negative relays per service", func(c *affinity.PlanConfig) { c.RelaysPerService = -1 }, "relays per service -1", nil},
		{"too few relays per service", func(c *affinity.PlanConfig) { c.RelaysPerService = 2 }, "relays per service 2: allowed are 3 ", nil},
		{"fewer relays per service than peers per worker", func(c *affinity.PlanConfig) {
			c.RelaysPerService, c.Minimums = 4, affinity.Minimums{PeersPerWorker: 5, PeersPerRelay: 1}
		}, "relays per service 4: allowed are 5 ", nil},
		{"peers per tier", func(c *affinity.PlanConfig) { c.PeersPerTier = -1 }, "peers per tier -1", nil},
		{"all skipped", func(c *affinity.PlanConfig) { c.Skip = relayIDs(3) }, "skip list", affinity.ErrNoRelays},
		{"weight", func(c *affinity.PlanConfig) { c.Workers[2].Weight = 101 }, "weight 101", nil},
		{"negative weight", func(c *affinity.PlanConfig) { c.Workers[2].Weight = -1 }, "weight -1", nil},
		{"strategy", func(c *affinity.PlanConfig) { c.Strategy = "modulo" }, `"projection" and "rendezvous"`, nil},
		{"index source", func(c *affinity.PlanConfig) { c.IndexSource = "ordinal" }, `"slot" and "rank"`, nil},
	} {
		cfg := good()
		c.change(&cfg)
		p, err := affinity.NewPlan(cfg)
		if err == nil || p != nil {
			t.Errorf("%s: got %v, %v; want an error", c.name, p, err)
			continue
		}
		if !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %q does not say %q", c.name, err, c.says)
		}
		if c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s: %q is not %q", c.name, err, c.is)
		}
	}
}

func TestServiceNames(t *testing.T) {
	for name, valid := range map[string]bool{
		"a": true, "Billing.v2": true, "0_x-y": true, strings.Repeat("a", 63): true,
		"": false, strings.Repeat("a", 64): false, "-a": false, ".a": false, "_a": false,
		"a~0": false, "a b": false, "a/b": false, "größe": false, "a\x00": false,
	} {
		if err := affinity.ValidateService(name); (err == nil) != valid {
			t.Errorf("ValidateService(%q) = %v, want valid: %v", name, err, valid)
		}
		_, err := affinity.NewPlan(affinity.PlanConfig{Service: name, Relays: someRelays(1), Workers: someWorkers(1)})
		if (err == nil) != valid {
			t.Errorf("a plan for service %q: %v, want valid: %v", name, err, valid)
		}
	}
}

// Pinned, so that relays of two builds agree on the connections.
func TestThePlanIsPinned(t *testing.T) {
	for source, want := range map[affinity.IndexSource]string{
		affinity.IndexSlot: "[relay-3 relay-1 relay-2 relay-0] [worker-1 worker-2 worker-3 worker-0 worker-5 worker-4]",
		affinity.IndexRank: "[relay-1 relay-2 relay-0 relay-3] [worker-1 worker-2 worker-3 worker-0 worker-5 worker-4]",
	} {
		p := mustPlan(t, affinity.PlanConfig{Service: "billing", Relays: someRelays(4), Workers: someWorkers(6), IndexSource: source})
		if got := fmt.Sprint(p.Affine(), p.Workers()); got != want {
			t.Errorf("%s: got  %s\nwant %s", source, got, want)
		}
	}
}
