package advertise

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// listener is a catalogue of a relay that receives the records of workers, and a clock.
type listener struct {
	*Catalogue
	t    *testing.T
	keys *keys
	now  time.Time
}

func newListener(t *testing.T) *listener {
	p := &listener{t: t, keys: newKeys(), now: start}
	still := &signedStill{still: newStill("relay"), author: author{p.keys, "relay"}}
	var err error
	if p.Catalogue, err = New(Config{Gossip: still, Now: func() time.Time { return p.now }}); err != nil {
		t.Fatal(err)
	}
	p.setMembers(snapshotOf(map[string]uint64{"a": 1, "b": 1}))
	return p
}

// record is one that a worker signs.
func (p *listener) record(id string, sequence uint64) []byte {
	p.t.Helper()
	return p.keys.signedBy(p.t, id, Record{NodeID: id, Epoch: 1, Sequence: sequence, Services: echo(1)})
}

// gossip delivers a record and returns the sequence that is stored then.
func (p *listener) gossip(raw []byte, id string) uint64 {
	p.receiveGossip(gossiped(raw))
	p.readMail()
	if e := p.store.entries[instance{id, 1}]; e != nil {
		return e.stamp.sequence
	}
	return 0
}

func (p *listener) received(result outcome) float64 {
	return testutil.ToFloat64(p.metrics.received.WithLabelValues(string(result)))
}

func TestAnAuthorReplacesItsRecordAtMostTwiceASecondAndLaterOneIsTaken(t *testing.T) {
	p := newListener(t)
	const flood = 500
	var stored uint64
	for n := range uint64(flood) {
		stored = p.gossip(p.record("a", n+1), "a")
	}
	if stored != updatesBurst || p.received(applied) != updatesBurst || p.received(limited) != flood-updatesBurst {
		t.Errorf("sequence %d is stored, %v records were applied and %v not; want %d applied", stored, p.received(applied), p.received(limited), updatesBurst)
	}
	// Neither does an exchange take more, nor does another author wait.
	if _, result, err := p.merge(p.examine(p.record("a", flood+1))); result != limited || err == nil {
		t.Errorf("an exchange: %s, %v", result, err)
	}
	if got := p.gossip(p.record("b", 1), "b"); got != 1 {
		t.Error("another author has to wait")
	}
	p.now = p.now.Add(time.Second)
	if got := p.gossip(p.record("a", flood+2), "a"); got != flood+2 {
		t.Errorf("a second later sequence %d is stored", got)
	}
	p.updates.expire(p.now.Add(time.Minute))
	if len(p.updates) != 0 {
		t.Errorf("%d authors are remembered although they may publish as much as ever", len(p.updates))
	}
}

// TestAMemberThatPublishesEverySecondIsNeverLimited plays two hours of a worker that changes all the
// time.
func TestAMemberThatPublishesEverySecondIsNeverLimited(t *testing.T) {
	p := newListener(t)
	for n := range uint64(2 * 60 * 60) {
		p.now = p.now.Add(time.Second)
		if n%600 == 0 { // every change has its own signature, which takes long
			if got := p.gossip(p.record("a", n+1), "a"); got != n+1 {
				t.Fatalf("sequence %d is stored after that of %d", got, n+1)
			}
		} else if !p.updates.allow("a", p.now) {
			t.Fatalf("change %d would wait", n)
		}
	}
}

func TestNoOtherMemberUsesUpTheUpdatesOfAnAuthor(t *testing.T) {
	p := newListener(t)
	for n := range uint64(10 * updatesBurst) {
		forged := p.keys.signedBy(t, "b", Record{NodeID: "a", Epoch: 1, Sequence: n + 2, Services: echo(1)})
		if got := p.gossip(forged, "a"); got != 0 {
			t.Fatal("a forged record was stored")
		}
	}
	if got := p.gossip(p.record("a", 1), "a"); got != 1 {
		t.Error("the author's own record was not taken after a flood of forged ones")
	}
}

// TestOfTwoRecordsWithOneSequenceAllMembersKeepTheSame has an author sign two different records with
// one sequence, which reach two members in the other order, or one member each.
func TestOfTwoRecordsWithOneSequenceAllMembersKeepTheSame(t *testing.T) {
	first, second := newListener(t), newListener(t)
	sign := func(port int) []byte {
		return first.keys.signedBy(t, "a", Record{NodeID: "a", Epoch: 1, Sequence: 7, Services: echo(port)})
	}
	one, other := sign(1), sign(2)
	first.gossip(one, "a")
	second.gossip(other, "a")
	if first.store.root == second.store.root {
		t.Fatal("both records have one hash: this test proves nothing")
	}
	for _, p := range []*listener{first, second} { // as an exchange brings them
		for _, raw := range [][]byte{one, other} {
			if _, _, err := p.merge(p.examine(raw)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if first.store.root != second.store.root || len(first.store.entries) != 1 {
		t.Error("two members keep different records of one author")
	}
	// Neither comes back when it is replayed, nor after a newer one.
	root := first.store.root
	for _, raw := range [][]byte{one, other, one, other} {
		first.gossip(raw, "a")
	}
	if first.store.root != root {
		t.Error("a replayed record changed what is stored")
	}
	first.gossip(first.record("a", 8), "a")
	root = first.store.root
	for _, raw := range [][]byte{one, other} {
		if got := first.gossip(raw, "a"); got != 8 || first.store.root != root {
			t.Errorf("an old record came back: sequence %d", got)
		}
	}
}
