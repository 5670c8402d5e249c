package fleet_test

import (
	"math"
	"slices"
	"testing"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/sims/internal/fleet"
)

func graphOf(t *testing.T, name string, s fleet.Size) (*fleet.Graph, fleet.Fleet) {
	t.Helper()
	all := fleet.Strategies()
	i := slices.IndexFunc(all, func(st fleet.Strategy) bool { return st.Name == name })
	if i < 0 {
		t.Fatalf("no strategy %q", name)
	}
	f := fleet.New(s.Relays*all[i].Spares, s.Workers)
	g := fleet.NewGraph(f)
	if err := all[i].Connect(g, s, f); err != nil {
		t.Fatal(err)
	}
	return g, f
}

func size(relays, workers, m int) fleet.Size {
	return fleet.Size{Relays: relays, Workers: workers, PerWorker: m, PerRelay: 3}
}

// Every relay distributes its whole traffic, whatever the strategy.
func TestSharesOfARelaySumToOne(t *testing.T) {
	for _, s := range []fleet.Size{size(7, 100, 3), size(50, 101, 3), size(30, 7, 4)} {
		for _, st := range fleet.Strategies() {
			g, _ := graphOf(t, st.Name, s)
			if sum := g.HandedOver(); math.Abs(sum-float64(s.Relays)) > 1e-9 {
				t.Errorf("%v, %s: %d relays hand out %v", s, st.Name, s.Relays, sum)
			}
		}
	}
}

// What is known of the others, from their own descriptions or from counting.
func TestTheOtherStrategiesHaveTheirKnownFigures(t *testing.T) {
	for _, c := range []struct {
		strategy    string
		size        fleet.Size
		connections int
		coverage    fleet.Span
		peak        float64
	}{
		// Two roundings that differ make connections without use.
		{"Hyperbahn, description", size(50, 1009, 3), 3052, fleet.Span{Min: 3, Max: 4}, 1.323},
		{"Hyperbahn, production", size(50, 1009, 3), 3099, fleet.Span{Min: 3, Max: 4}, 1.307},
		// Whole turns of the ring: equal load, and a partial worker at the ends.
		{"Finagle, same coverage", size(50, 1009, 3), 3076, fleet.Span{Min: 3, Max: 4}, 1},
		{"Finagle, same coverage", size(50, 1000, 3), 3000, fleet.Span{Min: 3, Max: 3}, 1},
		{"Finagle, aperture 12", size(50, 1000, 3), 1000, fleet.Span{Min: 1, Max: 1}, 1},
	} {
		g, f := graphOf(t, c.strategy, c.size)
		got := fleet.Measure(g, f)
		if got.Connections != c.connections || got.PerWorker != c.coverage || math.Abs(got.Peak-c.peak) > 0.0005 {
			t.Errorf("%s, %v: %+v, want %d connections, %v, load %v", c.strategy, c.size, got, c.connections, c.coverage, c.peak)
		}
	}
	// Every round of clients covers every backend once: 3 rounds of 20 at 60 clients.
	g, f := graphOf(t, "SRE book", size(60, 1000, 3))
	if got := fleet.Measure(g, f); got.PerWorker != (fleet.Span{Min: 3, Max: 3}) || got.PerRelay != (fleet.Span{Min: 50, Max: 50}) {
		t.Errorf("SRE book, whole rounds: %+v", got)
	}
	// Every client alone: sizes are right, coverage is chance.
	g, f = graphOf(t, "random (A68)", size(50, 1000, 3))
	if got := fleet.Measure(g, f); got.PerRelay != (fleet.Span{Min: 60, Max: 60}) || got.PerWorker.Max < 6 || got.PerWorker.Min > 1 {
		t.Errorf("random: %+v", got)
	}
}

// Random subsetting promises that one server more takes at most one place per client.
func TestOneServerMoreTakesAtMostOnePlacePerClient(t *testing.T) {
	s := size(40, 300, 3)
	before, f := graphOf(t, "random (A68)", s)
	after := fleet.NewGraph(f)
	all := fleet.Strategies()
	i := slices.IndexFunc(all, func(st fleet.Strategy) bool { return st.Name == "random (A68)" })
	if err := all[i].Connect(after, s, fleet.Fleet{Relays: f.Relays, Workers: fleet.With(f.Workers, 300)}); err != nil {
		t.Fatal(err)
	}
	for _, relay := range f.Relays {
		lost := 0
		for _, worker := range f.Workers {
			if before.Connected(relay, worker) && !after.Connected(relay, worker) {
				lost++
			}
		}
		if lost > 1 {
			t.Errorf("client %d lost %d servers", relay, lost)
		}
	}
}

func TestASizeIsReadAndRefused(t *testing.T) {
	if s, err := fleet.ParseSize("50x1000x3"); err != nil || s != size(50, 1000, 3) {
		t.Errorf("%+v, %v", s, err)
	}
	for _, text := range []string{"", "50x1000", "50x1000x2", "50x1000x51", "0x1000x3", "ax1000x3", "50x1000x3x4"} {
		if _, err := fleet.ParseSize(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

func TestAMeshServesWithAsManyRelaysAsTheServiceNeeds(t *testing.T) {
	s := size(50, 1000, 3)
	for _, auto := range []bool{true, false} {
		m := fleet.NewMesh(s, fleet.RolloutPolicy{Auto: auto})
		v := m.NewView()
		if err := m.Begin(v, fleet.New(s.Relays, s.Workers)); err != nil {
			t.Fatal(err)
		}
		want := s.Relays
		if auto {
			want = affinity.PlanConfig{}.Serving(s.Relays, s.Workers)
		}
		if got := len(v.Affine()); got != want || auto && got == s.Relays || !slices.Equal(v.Plan().Affine(), fleet.Fleet{Relays: v.Affine()}.RelayIDs()) {
			t.Errorf("automatic %v: %d relays serve, want %d", auto, got, want)
		}
	}
}
