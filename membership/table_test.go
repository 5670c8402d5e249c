package membership

import (
	"strconv"
	"testing"
	"time"

	"github.com/ringway/ringway/membership/identity"
)

func member(id string, epoch uint64) Member {
	return Member{ID: id, Epoch: epoch, Role: identity.RoleWorker, GossipAddr: "127.0.0.1:1"}
}

func events(changes []change) string {
	s := ""
	for _, c := range changes {
		s += c.event + " "
	}
	return s
}

func TestTheTableReportsChanges(t *testing.T) {
	now := time.Unix(0, 0)
	tb := newTable("self.1")
	moved := member("w1", 2)
	moved.ForwardAddr = "127.0.0.1:2"
	for i, step := range []struct {
		do   func() []change
		want string
	}{
		{func() []change { return tb.seen(member("w1", 1), now) }, "joined "},
		{func() []change { return tb.seen(member("w1", 1), now) }, ""},
		{func() []change { return tb.seen(member("w1", 2), now) }, "superseded joined "},
		{func() []change { return tb.seen(member("w1", 1), now) }, ""}, // late news of the old life
		{func() []change { return tb.gone("w1.1", true, now) }, ""},    // its death, too
		{func() []change { return tb.seen(moved, now) }, "changed "},
		{func() []change { return tb.gone("w1.2", true, now) }, "failed "},
		{func() []change { return tb.seen(member("w1", 1), now) }, "outdated "}, // not back
		{func() []change { return tb.seen(member("w1", 3), now) }, "joined "},
		{func() []change { return tb.announced("w1", 2, time.Time{}) }, ""}, // not this life
		{func() []change { return tb.announced("w1", 3, time.Time{}) }, "changed "},
		{func() []change { return tb.seen(member("w1", 3), now) }, ""}, // still leaving
		{func() []change { return tb.gone("w1.3", true, now) }, "left "},
		{func() []change { return tb.seen(member("w1", 3), now) }, ""}, // who left never comes back
		{func() []change { return tb.gone("nonsense", true, now) }, ""},
	} {
		if got := events(step.do()); got != step.want {
			t.Fatalf("step %d: got %q, want %q", i, got, step.want)
		}
	}
}

func TestOnlyFailedMembersAreLookedFor(t *testing.T) {
	now := time.Unix(0, 0)
	tb := newTable("self.1")
	tb.seen(member("failed", 1), now)
	tb.seen(member("left", 1), now)
	tb.announced("left", 1, time.Time{})
	tb.gone("failed.1", true, now)
	tb.gone("left.1", true, now)
	if _, ok := tb.lost["failed"]; !ok || len(tb.lost) != 1 {
		t.Fatalf("lost: %v, want only the failed one", tb.lost)
	}
	tb.seen(member("failed", 2), now)
	if len(tb.lost) != 0 {
		t.Fatal("a member that came back is still looked for")
	}
	tb.gone("failed.2", true, now)
	tb.seen(member("other", 1), now)
	tb.gone("other.1", true, now.Add(lostTTL+time.Second))
	if _, ok := tb.lost["failed"]; ok {
		t.Fatal("a member lost for more than a day is still looked for")
	}
}

func TestTheLatestLostMembersAreLookedForAndRelaysBeforeOthers(t *testing.T) {
	now := time.Unix(0, 0)
	tb := newTable("self.1")
	lose := func(id string, role identity.Role) {
		now = now.Add(time.Second)
		m := member(id, 1)
		m.Role = role
		tb.seen(m, now)
		tb.gone(m.Instance(), true, now)
	}
	for i := range maxLost {
		lose("pod"+strconv.Itoa(i), identity.RoleWorker)
	}
	lose("relay", identity.RoleRelay)
	for i := range maxLost {
		lose("later"+strconv.Itoa(i), identity.RoleWorker)
	}
	_, relay := tb.lost["relay"]
	_, oldest := tb.lost["pod0"]
	_, latest := tb.lost["later"+strconv.Itoa(maxLost-1)]
	if !relay || oldest || !latest || len(tb.lost) != maxLost {
		t.Errorf("%d are looked for; the relay: %v, the oldest: %v, the latest: %v", len(tb.lost), relay, oldest, latest)
	}
}

func TestAnInstanceOfAClockThatWentBackwardsIsLetInOnceItHasProvenItself(t *testing.T) {
	now := time.Unix(0, 0)
	tb := newTable("self.1")
	tb.seen(member("w1", 10), now)
	if got := events(tb.seen(member("w1", 5), now)); got != "outdated " {
		t.Fatalf("got %q", got)
	}
	if got := events(tb.gone("w1.10", true, now.Add(time.Second))); got != "failed " {
		t.Fatalf("got %q", got)
	}
	if changes, again := tb.tick(true, now.Add(proofOfLife-time.Second)); len(changes) > 0 || !again {
		t.Fatalf("let in after less than the proof of life: %v", changes)
	}
	changes, _ := tb.tick(true, now.Add(proofOfLife))
	if events(changes) != "joined " || tb.alive["w1"].Epoch != 5 {
		t.Fatalf("not let in: %v", changes)
	}
	// The later boot was only out of reach: it is the one to follow.
	if got := events(tb.seen(member("w1", 10), now.Add(time.Hour))); got != "superseded joined " {
		t.Fatalf("got %q", got)
	}
}

func TestTheLastTracesOfAnEarlierLifeAreNotLetIn(t *testing.T) {
	now := time.Unix(0, 0)
	tb := newTable("self.1")
	tb.seen(member("w1", 1), now)
	tb.seen(member("w1", 2), now) // the first is dead, though memberlist does not know it yet
	tb.gone("w1.2", true, now.Add(time.Second))
	tb.gone("w1.1", true, now.Add(10*time.Second))
	if changes, _ := tb.tick(true, now.Add(time.Hour)); len(changes) > 0 || len(tb.alive) > 0 {
		t.Fatalf("a phantom: %v, %v", changes, tb.alive)
	}
}

func TestThisNodeNeedsNoProofThatItLives(t *testing.T) {
	now := time.Unix(0, 0)
	tb := newTable("self.1")
	tb.seen(member("self", 1), now)
	tb.seen(member("self", 2), now)
	if got := events(tb.gone("self.2", true, now)); got != "failed joined " || tb.alive["self"].Epoch != 1 {
		t.Fatalf("got %q", got)
	}
}

func TestALateAnnouncementTurnsAFailureIntoALeave(t *testing.T) {
	now := time.Unix(0, 0)
	tb := newTable("self.1")
	tb.seen(member("w1", 1), now)
	tb.gone("w1.1", true, now)
	if got := events(tb.announced("w1", 2, time.Time{})); got != "" {
		t.Fatalf("of another life, yet: %q", got)
	}
	if got := events(tb.announced("w1", 1, time.Time{})); got != "left " || len(tb.lost) != 0 || len(tb.burst.failed) != 0 {
		t.Fatalf("got %q, lost %v", got, tb.lost)
	}
	if got := events(tb.announced("w1", 1, time.Time{})); got != "" {
		t.Fatalf("told twice: %q", got)
	}
	if got := events(tb.seen(member("w1", 1), now)); got != "" {
		t.Fatalf("it said goodbye, and is back: %q", got)
	}
}

func TestObserversThatEndTogetherDegradeNothing(t *testing.T) {
	now := time.Unix(0, 0)
	observer := func(id string) Member { m := member(id, 1); m.Role = identity.RoleObserver; return m }
	fleet := func() *table {
		tb := newTable("self.1")
		tb.seen(member("self", 1), now)
		for _, id := range []string{"w1", "w2", "w3", "w4"} {
			tb.seen(member(id, 1), now)
		}
		for i := range 20 {
			tb.seen(observer("o"+strconv.Itoa(i)), now)
		}
		tb.seen(member("o19", 2), now) // a member may return with another role
		return tb
	}
	all := func(tb *table, answered bool) *table {
		for i := range 19 {
			tb.gone("o"+strconv.Itoa(i)+".1", answered, now)
		}
		return tb
	}
	if tb := all(fleet(), true); tb.burst.on || tb.census() != (census{6, 6}) {
		t.Errorf("the end of 19 observers out of 25 members: degraded %v, %+v", tb.burst.on, tb.census())
	}
	if tb := all(fleet(), false); !tb.burst.on {
		t.Error("a node whose probes get no answer trusts that observers failed")
	}
	// Observers that are left do not hide the loss of the others.
	tb := fleet()
	for _, id := range []string{"w1.1", "w2.1", "w3.1"} {
		tb.gone(id, true, now)
	}
	if !tb.burst.on {
		t.Error("the loss of 3 out of 6 members behind 19 observers is not degraded")
	}
}
