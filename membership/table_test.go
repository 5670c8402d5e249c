package membership

import (
	"testing"
	"time"
)

func member(id string, epoch uint64) Member {
	return Member{ID: id, Epoch: epoch, Role: RoleWorker, GossipAddr: "127.0.0.1:1"}
}

func events(changes []change) string {
	s := ""
	for _, c := range changes {
		s += c.event + " "
	}
	return s
}

func TestTheTableTellsWhatHappened(t *testing.T) {
	now := time.Unix(0, 0)
	tb := newTable()
	moved := member("w1", 2)
	moved.ForwardAddr = "127.0.0.1:2"
	for i, step := range []struct {
		do   func() []change
		want string
	}{
		{func() []change { return tb.seen(member("w1", 1)) }, "joined "},
		{func() []change { return tb.seen(member("w1", 1)) }, ""},
		{func() []change { return tb.seen(member("w1", 2)) }, "superseded joined "},
		{func() []change { return tb.seen(member("w1", 1)) }, ""}, // late news of the old life
		{func() []change { return tb.gone("w1.1", now) }, ""},     // its death, too
		{func() []change { return tb.seen(moved) }, "changed "},
		{func() []change { return tb.gone("w1.2", now) }, "failed "},
		{func() []change { return tb.seen(member("w1", 1)) }, ""}, // never back
		{func() []change { return tb.seen(member("w1", 3)) }, "joined "},
		{func() []change { return tb.announced("w1", 2) }, ""}, // not this life
		{func() []change { return tb.announced("w1", 3) }, "changed "},
		{func() []change { return tb.seen(member("w1", 3)) }, ""}, // still leaving
		{func() []change { return tb.gone("w1.3", now) }, "left "},
		{func() []change { return tb.gone("nonsense", now) }, ""},
	} {
		if got := events(step.do()); got != step.want {
			t.Fatalf("step %d: got %q, want %q", i, got, step.want)
		}
	}
}

func TestOnlyWhoFailedIsLookedFor(t *testing.T) {
	now := time.Unix(0, 0)
	tb := newTable()
	tb.seen(member("failed", 1))
	tb.seen(member("left", 1))
	tb.announced("left", 1)
	tb.gone("failed.1", now)
	tb.gone("left.1", now)
	if _, ok := tb.lost["failed"]; !ok || len(tb.lost) != 1 {
		t.Fatalf("lost: %v, want only the failed one", tb.lost)
	}
	tb.seen(member("failed", 2))
	if len(tb.lost) != 0 {
		t.Fatal("a member that came back is still looked for")
	}
	tb.gone("failed.2", now)
	tb.seen(member("other", 1))
	tb.gone("other.1", now.Add(lostFor+time.Second))
	if _, ok := tb.lost["failed"]; ok {
		t.Fatal("a member lost for more than a day is still looked for")
	}
}
