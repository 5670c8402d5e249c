package membership

import (
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// anySnapshot draws a snapshot of a few ids, so that two of them overlap.
func anySnapshot(t *rapid.T, name string) *Snapshot {
	var members []Member
	var departed []Departure
	for i := range 8 {
		m := member("m"+strconv.Itoa(i), uint64(rapid.IntRange(1, 3).Draw(t, name+" epoch")))
		m.Version = rapid.SampledFrom([]string{"v1", "v2"}).Draw(t, name+" version")
		switch rapid.IntRange(0, 3).Draw(t, name+" state") {
		case 0:
			departed = append(departed, Departure{m, Left, time.Time{}})
		case 1:
			departed = append(departed, Departure{m, Failed, time.Time{}})
		case 2:
			members = append(members, m)
		}
	}
	return NewSnapshot(1, "m0", members).WithDepartures(departed, false)
}

func TestTheChangesTurnTheOldMembersIntoTheNew(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before, after := anySnapshot(t, "before"), anySnapshot(t, "after")
		c := Diff(before, after)

		members := make(map[string]Member)
		for _, m := range before.Members() {
			members[m.ID] = m
		}
		take := func(m Member) {
			if members[m.ID] != m {
				t.Fatalf("%+v goes, but %+v was there", m, members[m.ID])
			}
			delete(members, m.ID)
		}
		for _, m := range slices.Concat(c.Left, c.Failed) {
			take(m)
		}
		for _, r := range slices.Concat(c.Superseded, c.Changed) {
			take(r.Old)
			members[r.New.ID] = r.New
		}
		for _, m := range c.Joined {
			if _, there := members[m.ID]; there {
				t.Fatalf("%s joined, but was there", m.ID)
			}
			members[m.ID] = m
		}
		if len(members) != len(after.Members()) {
			t.Fatalf("got %v, want %v", members, after.Members())
		}
		for _, m := range after.Members() {
			if members[m.ID] != m {
				t.Fatalf("got %+v, want %+v", members[m.ID], m)
			}
		}
	})
}

func TestEachChangeHasItsKind(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before, after := anySnapshot(t, "before"), anySnapshot(t, "after")
		c := Diff(before, after)
		for _, m := range c.Left {
			if d, ok := after.Departed(m.ID); !ok || d.Reason != Left {
				t.Fatalf("%s left, but the snapshot says %v", m.ID, d)
			}
		}
		for _, m := range c.Failed {
			if d, ok := after.Departed(m.ID); ok && d.Reason == Left {
				t.Fatalf("%s failed, but the snapshot says that it left", m.ID)
			}
		}
		for _, r := range c.Superseded {
			if r.Old.Epoch == r.New.Epoch {
				t.Fatalf("%v superseded itself", r)
			}
		}
		for _, r := range c.Changed {
			if r.Old.Epoch != r.New.Epoch || r.Old == r.New {
				t.Fatalf("%v is no change of one instance", r)
			}
		}
		if !reflect.DeepEqual(Diff(before, before), Changes{}) || !reflect.DeepEqual(Diff(nil, nil), Changes{}) {
			t.Fatal("a snapshot differs from itself")
		}
		if joined := Diff(nil, after).Joined; !slices.Equal(joined, after.Members()) {
			t.Fatalf("from nothing, %v joined", joined)
		}
		back := Diff(after, before)
		if gone := len(c.Left) + len(c.Failed); gone != len(back.Joined) || len(c.Superseded) != len(back.Superseded) {
			t.Fatalf("%d went, %d joined on the way back", gone, len(back.Joined))
		}
	})
}

// A node that is cut off for hours keeps its peers by these departures.
func TestAFailureIsNotForgottenWhileTheViewIsDegraded(t *testing.T) {
	var d departures
	now := time.Now()
	d.add(Departure{Member: Member{ID: "failed"}, Reason: Failed, At: now})
	d.add(Departure{Member: Member{ID: "left"}, Reason: Left, At: now})
	late := now.Add(departuresFor + time.Second)
	if got := d.list(late, true); len(got) != 1 || got[0].Member.ID != "failed" {
		t.Errorf("while the view is degraded: %v", got)
	}
	if got := d.list(late, false); len(got) != 0 {
		t.Errorf("afterwards: %v", got)
	}
}

func TestTheMemoryOfDeparturesIsBounded(t *testing.T) {
	var d departures
	now := time.Unix(0, 0)
	for i := range departuresKept + 10 {
		d.add(Departure{member("m"+strconv.Itoa(i), 1), Failed, now})
	}
	if got := d.list(now, true); len(got) != departuresKept+10 {
		t.Fatalf("%d are kept while the view is degraded: a node that is cut off drops peers", len(got))
	}
	if got := d.list(now, false); len(got) != departuresKept {
		t.Fatalf("%d are kept", len(got))
	}
	if d.find("m0") >= 0 || d.find("m"+strconv.Itoa(departuresKept+9)) < 0 {
		t.Fatal("not the oldest were dropped")
	}
	if got := d.list(now.Add(departuresFor+time.Second), false); len(got) != 0 {
		t.Fatalf("%d are kept for more than an hour", len(got))
	}
	for i := range departuresMost + 10 {
		d.recent = append(d.recent, Departure{member("n"+strconv.Itoa(i), 1), Failed, now})
	}
	d.add(Departure{member("last", 1), Failed, now})
	if got := d.list(now, true); len(got) != departuresMost {
		t.Fatalf("%d are kept while the view is degraded", len(got))
	}
}
