package affinity_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/ring"
)

func observed(t rapidOrT, cfg affinity.ObserverConfig) []string {
	t.Helper()
	assignments, err := affinity.ObserverRange(cfg)
	if err != nil {
		t.Fatal(err)
	}
	sum, ids := 0.0, make([]string, len(assignments))
	for i, a := range assignments {
		sum += a.Weight
		ids[i] = a.Worker
	}
	if sum < 0.999 || sum > 1.001 {
		t.Fatalf("the weights add up to %v", sum)
	}
	return ids
}

type rapidOrT interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

func TestManyObserversSpreadOverAllWorkers(t *testing.T) {
	for _, c := range []struct{ observers, workers int }{{100, 80}, {500, 500}, {1000, 5000}, {3000, 1000}} {
		var ids []string
		for i := range c.workers {
			ids = append(ids, fmt.Sprintf("worker-%d", i))
		}
		workers := affinity.Workers(ring.Order("echo", ids))
		count := map[string]int{}
		for i := range c.observers {
			of := observed(t, affinity.ObserverConfig{
				Service: "echo", Observer: affinity.Relay{ID: fmt.Sprintf("caller-%d", i)}, Workers: workers, WorkersOrdered: true, Endpoints: 64,
			})
			if len(of) != 64 {
				t.Fatalf("%d endpoints", len(of))
			}
			for _, id := range of {
				count[id]++
			}
		}
		average := float64(c.observers) * 64 / float64(c.workers)
		least, most := c.observers, 0
		for _, id := range ids {
			least, most = min(least, count[id]), max(most, count[id])
		}
		t.Logf("%d observers, %d workers: %.0f on average, %d to %d", c.observers, c.workers, average, least, most)
		if average >= 64 && (float64(least) < average/2 || float64(most) > 2*average) {
			t.Errorf("%d observers, %d workers: a worker has %d to %d, on average %.0f", c.observers, c.workers, least, most, average)
		}
		if least == 0 {
			t.Errorf("%d observers reach not all of %d workers", c.observers, c.workers)
		}
	}
}

// The reference scans all workers for the next hash.
func TestAnObserverUsesTheWorkersThatFollowItsHash(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOfNDistinct(rapid.StringMatching(`w[0-9]{1,3}`), 1, 40, rapid.ID[string]).Draw(t, "workers")
		self := rapid.StringMatching(`o[0-9]{1,3}`).Draw(t, "observer")
		most := rapid.IntRange(0, 45).Draw(t, "endpoints")
		got := observed(t, affinity.ObserverConfig{Service: "echo", Observer: affinity.Relay{ID: self}, Workers: affinity.Workers(ids), Endpoints: most})
		all := ring.Order("echo", append(slices.Clone(ids), self))
		at := slices.Index(all, self)
		want := slices.Concat(all[at+1:], all[:at])
		if most > 0 {
			want = want[:min(most, len(want))]
		}
		if !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
}

func TestAWorkerThatJoinsOrLeavesReplacesAtMostOneOther(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOfNDistinct(rapid.StringMatching(`w[0-9]{1,3}`), 2, 60, rapid.ID[string]).Draw(t, "workers")
		cfg := affinity.ObserverConfig{Service: "echo", Observer: affinity.Relay{ID: "o"}, Workers: affinity.Workers(ids), Endpoints: rapid.IntRange(1, 20).Draw(t, "endpoints")}
		more := observed(t, cfg)
		cfg.Workers = affinity.Workers(ids[1:]) // the first one leaves, or has not joined yet
		fewer := observed(t, cfg)
		gone := slices.DeleteFunc(slices.Clone(more), func(id string) bool { return slices.Contains(fewer, id) })
		come := slices.DeleteFunc(slices.Clone(fewer), func(id string) bool { return slices.Contains(more, id) })
		if len(gone) > 1 || len(come) > 1 || len(gone) == 1 && gone[0] != ids[0] {
			t.Fatalf("without %s %v go and %v come", ids[0], gone, come)
		}
	})
}

func TestAnObserverPrefersNearWorkersWhereThereAreEnough(t *testing.T) {
	place := func(dc string) affinity.Place { return affinity.Place{Datacenter: dc, Region: dc[:2]} }
	for _, c := range []struct {
		datacenters []string
		want        int
	}{
		{[]string{"eu-1", "eu-1", "eu-1", "eu-2", "us-1"}, 3},
		{[]string{"eu-1", "eu-1", "eu-2", "us-1"}, 3},
		{[]string{"eu-1", "eu-2", "us-1", "us-1"}, 4},
	} {
		var workers []affinity.Worker
		for i, dc := range c.datacenters {
			workers = append(workers, affinity.Worker{ID: fmt.Sprint("w", i), Place: place(dc), Weight: i + 1})
		}
		got := observed(t, affinity.ObserverConfig{Service: "echo", Observer: affinity.Relay{ID: "o", Place: place("eu-1")}, Workers: workers})
		if len(got) != c.want {
			t.Errorf("%v: uses %v", c.datacenters, got)
		}
	}
}

func TestAnObserverWithoutWorkersOrWithBadOnesGetsAnError(t *testing.T) {
	if _, err := affinity.ObserverRange(affinity.ObserverConfig{Service: "echo", Observer: affinity.Relay{ID: "o"}}); !errors.Is(err, affinity.ErrNoWorkers) {
		t.Error(err)
	}
	for name, workers := range map[string][]affinity.Worker{
		"twice": {{ID: "w"}, {ID: "w"}}, "no id": {{}}, "weight": {{ID: "w", Weight: 101}},
	} {
		if _, err := affinity.ObserverRange(affinity.ObserverConfig{Service: "echo", Observer: affinity.Relay{ID: "o"}, Workers: workers}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
