package peering

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

type member struct{ id, address string }

func TestAMemberThatVanishedCountsForTheGracePeriod(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	a, b, c := member{"a", "10.0.0.1"}, member{"b", "10.0.0.2"}, member{"c", "10.0.0.3"}
	g := NewGrace(30*time.Second, func(m member) string { return m.id })
	for _, step := range []struct {
		promise string
		second  int
		present []member
		absent  []member
		next    int // second, 0 for never
	}{
		{"who is there from the start is not absent", 0, []member{a, b, c}, nil, 0},
		{"who vanished counts as it was", 10, []member{a}, []member{b, c}, 40},
		{"who is back is not absent, even with another address", 20, []member{a, {"b", "10.9.9.9"}}, []member{c}, 40},
		{"longest gone comes first", 25, []member{{"b", "10.9.9.9"}}, []member{c, a}, 40},
		{"at the end of the period it stops to count", 40, []member{{"b", "10.9.9.9"}}, []member{a}, 55},
		{"and what is left goes in its turn", 55, []member{{"b", "10.9.9.9"}}, nil, 0},
		{"who vanished a second time has a period of its own", 60, nil, []member{{"b", "10.9.9.9"}}, 90},
	} {
		absent, next := g.Update(step.present, at(step.second))
		if diff := cmp.Diff(step.absent, absent, cmp.AllowUnexported(member{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.promise, diff)
		}
		if want := at(step.next); step.next > 0 && !next.Equal(want) || step.next == 0 && !next.IsZero() {
			t.Errorf("%s: next change at %v: want second %d", step.promise, next, step.next)
		}
	}
}

func TestMembersThatVanishTogetherHaveAFixedOrder(t *testing.T) {
	all := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	g := NewGrace(time.Second, func(id string) string { return id })
	g.Update(all, time.Unix(0, 0))
	if absent, _ := g.Update(nil, time.Unix(1, 0)); !slices.Equal(absent, all) {
		t.Errorf("absent are %q: want %q, sorted", absent, all)
	}
}

func TestWithoutAGracePeriodWhoVanishedIsGone(t *testing.T) {
	g := NewGrace(0, func(id string) string { return id })
	g.Update([]string{"a", "b"}, time.Unix(0, 0))
	if absent, next := g.Update([]string{"a"}, time.Unix(1, 0)); absent != nil || !next.IsZero() {
		t.Errorf("absent members %v until %v: want none", absent, next)
	}
}
