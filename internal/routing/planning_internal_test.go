package routing

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/loglimit"
	"github.com/ringway/ringway/internal/logtest"
	"github.com/ringway/ringway/internal/strategy"
)

func workersOf(versions ...string) (workers []versioned) {
	for i, v := range versions {
		workers = append(workers, versioned{affinity.Worker{ID: fmt.Sprint("w", i)}, v})
	}
	return workers
}

func TestTheVersionIsTheHighestThatAMajorityReaches(t *testing.T) {
	for _, c := range []struct {
		versions []string
		want     string
	}{
		{nil, ""},
		{[]string{"1"}, "1"},
		{[]string{"1", "999"}, "1"}, // none of two is a majority
		{[]string{"1", "1", "999"}, "1"},
		{[]string{"1", "2", "2"}, "2"},
		{[]string{"1", "1", "2", "2"}, "1"},
		{[]string{"1", "2", "2", "2"}, "2"},
		{[]string{"1", "1", "2", "2", "999"}, "2"}, // three of five have 2 or exceed it
		{[]string{"1", "2", "3"}, "2"},
		{[]string{"", "", "1"}, ""},
		{[]string{"", "1", "1"}, "1"},
		{[]string{"v1.9", "v1.10", "v1.10"}, "v1.10"},
		{[]string{"1.0-rc1", "1.0", "1.0-rc1"}, "1.0-rc1"},
	} {
		if got := majorityVersion(workersOf(c.versions...)); got != c.want {
			t.Errorf("of %q: %q, want %q", c.versions, got, c.want)
		}
	}
}

func TestOneWorkerAloneNeverDecidesOnTheVersion(t *testing.T) {
	version := rapid.SampledFrom([]string{"", "1", "1.9", "1.10", "2", "2-rc1"})
	rapid.Check(t, func(t *rapid.T) {
		honest := rapid.SliceOfN(version, 1, 12).Draw(t, "honest")
		got := majorityVersion(workersOf(append(slices.Clone(honest), "999")...))
		if !slices.Contains(honest, got) {
			t.Fatalf("one worker with 999 next to %q: %q", honest, got)
		}
		alone := majorityVersion(workersOf(honest...))
		slices.SortFunc(honest, strategy.CompareVersions)
		// A liar moves the choice by one worker at most.
		at := slices.IndexFunc(honest, func(v string) bool { return strategy.CompareVersions(v, alone) == 0 })
		if strategy.CompareVersions(got, honest[max(at-1, 0)]) < 0 {
			t.Fatalf("%q became %q, among %q", alone, got, honest)
		}
		order := rapid.Permutation(honest).Draw(t, "order")
		if again := majorityVersion(workersOf(order...)); strategy.CompareVersions(again, alone) != 0 {
			t.Fatalf("%q in another order: %q, before %q", order, again, alone)
		}
	})
}

// A slow reference: of all versions, the highest for which a count of the workers that have or exceed
// it is more than half.
func TestTheVersionAgreesWithACount(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		versions := rapid.SliceOfN(rapid.SampledFrom([]string{"", "1", "1.9", "1.10", "2", "3"}), 1, 12).Draw(t, "versions")
		want, found := "", false
		for _, v := range versions {
			voters := 0
			for _, other := range versions {
				if strategy.CompareVersions(other, v) >= 0 {
					voters++
				}
			}
			if 2*voters > len(versions) && (!found || strategy.CompareVersions(v, want) > 0) {
				want, found = v, true
			}
		}
		if got := majorityVersion(workersOf(versions...)); got != want {
			t.Fatalf("of %q: %q, want %q", versions, got, want)
		}
	})
}

// Workers that stop together are noticed one after the other. Their offers are two lines, as their
// failures are, and not a screen.
func TestOffersThatAreGoneTogetherAreTwoLines(t *testing.T) {
	log := &logtest.Log{}
	r := &Router{lines: loglimit.New(slog.New(slog.NewTextHandler(log, nil)))}
	for i := range 35 {
		r.logOffers("echo", []*advertise.Endpoint{{Service: advertise.Service{Name: "echo", Address: "10.0.0.1:80"}, Worker: &advertise.Worker{NodeID: fmt.Sprintf("w%02d", i)}}}, nil)
	}
	r.lines.Stop()
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], `msg="offer is gone" service=echo worker=w00 addr=10.0.0.1:80`) ||
		!strings.Contains(lines[1], `msg="offer is gone: several" count=34 subjects="echo/w01 echo/w02`) {
		t.Errorf("%d lines:\n%s", len(lines), log)
	}
}

// The lists are merged; the reference looks up each endpoint.
func TestComparedOffersAgreeWithALookup(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := func(old map[string]*advertise.Endpoint) (list []*advertise.Endpoint, byID map[string]*advertise.Endpoint) {
			byID = map[string]*advertise.Endpoint{}
			for _, id := range rapid.SliceOfNDistinct(rapid.StringMatching("w[0-9]"), 0, 10, rapid.ID[string]).Draw(t, "workers") {
				e := old[id]
				if e == nil || rapid.Bool().Draw(t, "changed") {
					e = &advertise.Endpoint{Worker: &advertise.Worker{NodeID: id}}
				}
				list, byID[id] = append(list, e), e
			}
			return inRingOrder("echo", list), byID
		}
		before, was := list(nil)
		after, is := list(was)
		want := map[string][2]*advertise.Endpoint{}
		for id, e := range is {
			if was[id] != e {
				want[id] = [2]*advertise.Endpoint{was[id], e}
			}
		}
		for id, e := range was {
			if is[id] == nil {
				want[id] = [2]*advertise.Endpoint{e, nil}
			}
		}
		got := map[string][2]*advertise.Endpoint{}
		compareOffers("echo", before, after, func(was, is *advertise.Endpoint) {
			got[cmp.Or(was, is).NodeID] = [2]*advertise.Endpoint{was, is}
		})
		if !maps.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}
