package advertise

import (
	"context"
	"testing"
	"time"
)

// attachedStill is the gossip of a relay that brings records of attached workers, and the records of
// them that the catalogue has reported to it.
type attachedStill struct {
	*signedStill
	take func(context.Context, []byte) (string, uint64, uint64, error)
	kept map[instance]uint64
}

func (g *attachedStill) HandleRecords(take func(context.Context, []byte) (string, uint64, uint64, error)) func(string, uint64, uint64) {
	g.take = take
	return func(author string, epoch, sequence uint64) { g.kept[instance{author, epoch}] = sequence }
}

// Records of attached workers come by their relays alone: no exchange brings one again that was dropped
// while its worker was away.
func TestWhoBringsTheRecordsOfAttachedWorkersIsToldWhichAreDropped(t *testing.T) {
	keys, now := newKeys(), start
	g := &attachedStill{signedStill: &signedStill{still: newStill("relay"), author: author{keys, "relay"}}, kept: map[instance]uint64{}}
	c, err := New(Config{Gossip: g, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	turn := func() { (<-c.calls)() }
	take := func(sequence uint64) {
		t.Helper()
		go turn()
		if _, _, _, err := g.take(t.Context(), keys.signedBy(t, "a", Record{NodeID: "a", Epoch: 1, Sequence: sequence, Services: echo(1)})); err != nil {
			t.Fatal(err)
		}
	}
	a := instance{"a", 1}
	c.setMembers(snapshotOf(map[string]uint64{"a": 1}))
	if take(5); g.kept[a] != 5 {
		t.Errorf("a record that was taken: %v", g.kept)
	}
	if take(4); g.kept[a] != 5 {
		t.Errorf("an older one: %v", g.kept)
	}
	c.setMembers(snapshotOf(nil))
	now = now.Add(orphanAge)
	if c.store.expire(now); g.kept[a] != 0 {
		t.Errorf("a record that was dropped: %v", g.kept)
	}
	if take(4); g.kept[a] != 0 {
		t.Errorf("one older than what was dropped: %v", g.kept)
	}
	if take(5); g.kept[a] != 5 {
		t.Errorf("the same once more: %v", g.kept)
	}
}
