package advertise

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/ringway/ringway/membership/identity"
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

// hintOf is the broadcast of a hint, which carries no signature.
func hintOf(t *testing.T, id string, epoch, sequence uint64) []byte {
	t.Helper()
	b, err := encode(wireHint{id, epoch, sequence, 1, 5000})
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte{kindHint}, b...)
}

// streams counts the streams from one member to another that open from now on. read returns them.
func (n *network) streams(from, to string) (read func() int) {
	opened := 0
	n.mu.Lock()
	defer n.mu.Unlock()
	n.onStream = func(f, t string, change int) {
		if f == from && t == to && change > 0 {
			opened++
		}
	}
	return func() int {
		n.mu.Lock()
		defer n.mu.Unlock()
		return opened
	}
}

// beyondGossip are services whose record is too large for gossip.
func beyondGossip(port int) (services []Service) {
	for i := range 40 {
		services = append(services, Service{Name: fmt.Sprintf("a-service-with-a-long-name-%d", i), Address: fmt.Sprintf("127.0.0.1:%d", port)})
	}
	return append(services, echo(port)...)
}

// Any member can write hints about another one, and all members hear them.
func TestAFloodOfHintsOpensFewStreamsToTheirAuthor(t *testing.T) {
	const compared = 3 // streams of comparisons in half a minute, at most
	for name, c := range map[string]struct {
		hint func(live, n uint64) (epoch, sequence uint64)
		most int
	}{
		"of lives before":      {func(_, n uint64) (uint64, uint64) { return n, 1 }, compared},
		"of lives to come":     {func(live, n uint64) (uint64, uint64) { return live + n, 1 }, compared},
		"of this life, rising": {func(live, n uint64) (uint64, uint64) { return live, n + 1 }, compared + hintMisses + hintMissesPerMinute/2},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 0, func(t *testing.T, n *network) {
				relay, victim := n.join("relay-0", identity.RoleRelay), n.join("worker-0", identity.RoleWorker)
				for i := range 3 {
					n.join(fmt.Sprint("worker-", i+1), identity.RoleWorker)
				}
				offer(t, victim, beyondGossip(1000))
				settle(2 * time.Minute)
				opened := n.streams("relay-0", "worker-0")
				for i := range uint64(1000) {
					epoch, sequence := c.hint(victim.member.Epoch, i+1)
					relay.hear(hintOf(t, "worker-0", epoch, sequence))
					settle(30 * time.Millisecond)
				}
				if got := opened(); got > c.most {
					t.Errorf("%d streams to the worker in half a minute, want at most %d", got, c.most)
				}
				// Comparisons go on, and bring what the worker changes meanwhile.
				offer(t, victim, beyondGossip(2000))
				settle(90 * time.Second)
				if got := endpoints(relay); len(got) != 1 || got[0].Address != "127.0.0.1:2000" {
					t.Errorf("after the flood the relay sees %v", got)
				}
			})
		})
	}
}

// A hint may overtake the news that its member has started again. A comparison with the new life
// may bring the record before the fetch does; such a run shows nothing about the hint, and another follows.
func TestAHintOfALifeToComeIsFollowedWhenItBegins(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprint("restart ", restart), func(t *testing.T) {
			for range 50 {
				if followsAHintOfALifeToCome(t, restart) {
					return
				}
			}
			t.Error("a comparison came before the fetch in each of 50 runs")
		})
	}
}

// followsAHintOfALifeToCome returns false if a comparison brought the record first.
func followsAHintOfALifeToCome(t *testing.T, restart bool) (shown bool) {
	bubble(t, 1, func(t *testing.T, n *network) {
		relay := n.join("relay-0", identity.RoleRelay)
		for i := range 3 {
			n.join(fmt.Sprint("worker-", i+1), identity.RoleWorker)
		}
		if restart {
			n.join("worker-0", identity.RoleWorker)
			settle(time.Minute)
			n.kill("worker-0")
		}
		settle(time.Minute)
		n.mu.Lock()
		delete(n.nodes, "relay-0") // it hears of no change
		n.mu.Unlock()
		fetched, compared := relay.count("exchanges_total", resultFetched), relay.count("exchanges_total", resultSynced)
		worker := n.join("worker-0", identity.RoleWorker)
		offer(t, worker, beyondGossip(1000))
		settle(2 * time.Second)
		relay.hear(hintOf(t, "worker-0", worker.member.Epoch, 1))
		settle(2 * time.Second)
		n.mu.Lock()
		n.nodes["relay-0"] = relay
		n.publish()
		n.mu.Unlock()
		settle(300 * time.Millisecond)
		if relay.count("exchanges_total", resultSynced) != compared {
			return
		}
		shown = true
		if got := relay.count("exchanges_total", resultFetched) - fetched; got != 1 || len(endpoints(relay)) != 1 {
			t.Errorf("the relay has fetched %v times and sees %v", got, endpoints(relay))
		}
	})
	return shown
}

// All members fetch the record of a worker that changes as often as a worker may.
func TestALargeRecordThatChangesEverySecondIsFollowed(t *testing.T) {
	bubble(t, 0, func(t *testing.T, n *network) {
		relay := n.join("relay-0", identity.RoleRelay)
		for i := range 10 {
			n.join(fmt.Sprint("worker-", i+1), identity.RoleWorker)
		}
		worker := n.join("worker-0", identity.RoleWorker)
		settle(time.Minute)
		late, worst := 0, 0
		for i := range 120 {
			offer(t, worker, beyondGossip(1000+i))
			settle(time.Second)
			if got := endpoints(relay); len(got) != 1 || got[0].Address < fmt.Sprint("127.0.0.1:", 1000+i-1) {
				late++
				worst = max(worst, late)
				continue
			}
			late = 0
		}
		t.Logf("the relay is behind for %d s at most", worst)
		if worst > 3 {
			t.Errorf("the relay is behind for %d s", worst)
		}
	})
}

func TestHintsOfInventedMembersCauseNoFetchAndTakeBoundedRoom(t *testing.T) {
	p := newListener(t)
	for i := range 2 * maxFetches {
		p.receiveGossip(hintOf(t, fmt.Sprint("ghost-", i), 2, 1))
		p.readMail()
	}
	p.receiveGossip(hintOf(t, "ghost-0", 3, 1)) // has its place
	p.receiveGossip(hintOf(t, "ghost-0", 2, 9))
	p.receiveGossip(hintOf(t, "a", 1, 1)) // lives
	p.readMail()
	if len(p.early) != maxFetches || p.early["ghost-0"].from.epoch != 3 || len(p.fetches) != 1 {
		t.Errorf("%d hints wait for a life, of ghost-0 that of %d, and %d fetches are planned", len(p.early), p.early["ghost-0"].from.epoch, len(p.fetches))
	}
	if p.received(refused) != maxFetches {
		t.Errorf("%v hints are refused, want %d", p.received(refused), maxFetches)
	}
	if p.expireFetches(); len(p.early)+len(p.fetches) != 0 {
		t.Errorf("%d hints and %d fetches are left", len(p.early), len(p.fetches))
	}
}
