package advertise

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ringway/ringway/membership"
)

var self = membership.Member{ID: "self", Datacenter: "here"}

func neverBusy(string) bool { return false }

// neighbours makes members of this node's datacenter and of another one.
func neighbours(near, far int) []membership.Member {
	members := []membership.Member{self}
	for i := range near {
		members = append(members, membership.Member{ID: fmt.Sprint("near-", i), Epoch: 1, Datacenter: "here"})
	}
	for i := range far {
		members = append(members, membership.Member{ID: fmt.Sprint("far-", i), Epoch: 1, Datacenter: "there"})
	}
	return members
}

func TestFourOfFivePartnersAreOfTheSameDatacenterAndAllHaveTheirTurn(t *testing.T) {
	const draws = 20_000
	for seed := range uint64(5) {
		// However unequal the datacenters are.
		for _, size := range [][2]int{{1, 1}, {3, 40}, {40, 3}} {
			near, far := size[0], size[1]
			p := newPartners(time.Minute, rand.New(rand.NewPCG(seed, 0)))
			members, drawn := neighbours(near, far), map[string]int{}
			for range draws {
				drawn[p.choose(self, members, neverBusy)]++
			}
			expect := func(kind string, n int, share float64) {
				want := draws * share / float64(n)
				for i := range n {
					// Six standard deviations: it never happens by chance.
					if got := float64(drawn[fmt.Sprint(kind, "-", i)]); math.Abs(got-want) > 6*math.Sqrt(want) {
						t.Errorf("seed %d, %d near, %d far: %s-%d drawn %v times, want about %v", seed, near, far, kind, i, got, want)
					}
				}
			}
			expect("near", near, nearShare)
			expect("far", far, 1-nearShare)
			if len(drawn) != near+far {
				t.Errorf("%d partners, want all %d others", len(drawn), near+far)
			}
		}
	}
}

func TestAPartnerIsAnotherMemberThatIsFree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members := neighbours(rapid.IntRange(0, 4).Draw(t, "near"), rapid.IntRange(0, 4).Draw(t, "far"))
		var free []string
		busy := map[string]bool{}
		for _, m := range members {
			if busy[m.ID] = rapid.Bool().Draw(t, m.ID); !busy[m.ID] && m.ID != self.ID {
				free = append(free, m.ID)
			}
		}
		p := newPartners(time.Minute, rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)))
		got := p.choose(self, members, func(id string) bool { return busy[id] })
		if len(free) == 0 && got != "" || len(free) > 0 && !slices.Contains(free, got) {
			t.Fatalf("%q is none of %q", got, free)
		}
	})
}

func TestOneSeedMakesTheSameChoices(t *testing.T) {
	choices := func(seed uint64) (out []string) {
		c, err := New(Config{Gossip: newStill("self"), Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			out = append(out, c.partners.delay(true).String(), c.partners.choose(self, neighbours(5, 5), neverBusy))
		}
		return out
	}
	if !slices.Equal(choices(1), choices(1)) {
		t.Error("one seed chose differently")
	}
	if slices.Equal(choices(1), choices(2)) || slices.Equal(choices(0), choices(0)) {
		t.Error("two seeds, or none, chose the same")
	}
}

func TestThePauseIsTheIntervalGiveOrTake30PercentAndShortAfterFailures(t *testing.T) {
	p := newPartners(30*time.Second, rand.New(rand.NewPCG(1, 0)))
	for compared, pauses := range map[bool]map[int]time.Duration{
		true:  {0: 30 * time.Second, 1: time.Second, 2: 2 * time.Second, 5: 16 * time.Second, 6: 30 * time.Second, 200: 30 * time.Second},
		false: {0: 2 * time.Second, 1: time.Second, 2: 2 * time.Second, 5: 2 * time.Second, 200: 2 * time.Second}, // its view is not settled
	} {
		for failures, want := range pauses {
			p.failures = failures
			shortest, longest := time.Hour, time.Duration(0)
			for range 1000 {
				d := p.delay(compared)
				shortest, longest = min(shortest, d), max(longest, d)
			}
			if shortest < want*7/10 || longest > want*13/10 || longest-shortest < want/2 {
				t.Errorf("compared %v, after %d failures from %v to %v, want %v ± 30 %%", compared, failures, shortest, longest, want)
			}
		}
	}
}

func TestAMemberThatWasBusyIsAskedAfterAllOthers(t *testing.T) {
	p := newPartners(time.Minute, rand.New(rand.NewPCG(1, 0)))
	p.ended("near-0", errBusy)
	p.ended("far-0", errBusy)
	p.ended("near-1", errors.New("not reached"))
	drawn := map[string]bool{}
	draw := func() {
		clear(drawn)
		for range 100 {
			drawn[p.choose(self, neighbours(2, 2), neverBusy)] = true
		}
	}
	if draw(); len(drawn) != 2 || !drawn["near-1"] || !drawn["far-1"] {
		t.Errorf("after near-0 and far-0 were busy: %v", drawn)
	}
	if got := p.choose(self, neighbours(1, 1), neverBusy); got != "near-0" && got != "far-0" {
		t.Errorf("of members that were all busy: %q", got)
	}
	p.ended("near-0", errBusy)
	p.ended("near-1", nil)
	if draw(); len(drawn) != 4 {
		t.Errorf("after a success: %v", drawn)
	}
}

func TestAJoinerComparesWithThreeMembersImmediately(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		near, far := rapid.IntRange(0, 6).Draw(t, "near"), rapid.IntRange(0, 6).Draw(t, "far")
		p := newPartners(time.Minute, rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)))
		alone := membership.NewSnapshot(1, self.ID, neighbours(0, 0))
		p.greet(self, nil, alone)
		p.greet(self, alone, membership.NewSnapshot(2, self.ID, neighbours(near, far)))
		got := slices.Clone(p.waiting)
		if want := min(joinExchanges, near+far); len(got) < want || len(got) > 2*joinExchanges {
			t.Fatalf("%d exchanges with %d others", len(got), near+far)
		}
		slices.Sort(got)
		if len(slices.Compact(got)) != len(p.waiting) || slices.Contains(got, self.ID) {
			t.Fatalf("exchanges with %q", p.waiting)
		}
	})
}

// A view settles by a comparison that began after the first worker had appeared: it must not wait for the
// next interval because an earlier exchange with the same member is still running.
func TestAPartnerThatIsBusyKeepsItsPlace(t *testing.T) {
	p := newPartners(time.Minute, rand.New(rand.NewPCG(1, 2)))
	for _, id := range []string{"a", "b"} {
		p.add(id)
	}
	busy := func(id string) bool { return id == "a" }
	if got := []string{p.next(busy), p.next(busy)}; !slices.Equal(got, []string{"b", ""}) {
		t.Errorf("while a is busy: %v", got)
	}
	if got := p.next(neverBusy); got != "a" {
		t.Errorf("when a is free: %q", got)
	}
}
