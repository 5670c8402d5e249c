package membership

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ringway/ringway/membership/internal/gossip"
)

// hears makes a node receive one message of memberlist, and waits until it is handled.
func (n *Node) hears(t *testing.T, kind byte, message any) {
	t.Helper()
	n.transport.queue(&memberlist.Packet{Buf: append(slices.Clone(n.transport.header), gossip.Encode(kind, message)...), From: n.transport.packets.LocalAddr(), Timestamp: time.Now()})
	synctest.Wait()
}

// The messages about b, c and a have equal lengths. The second one about b replaces the first, which
// empties memberlist's queue, which then assigns its numbers again: without the placeholder the
// goodbye of a gets the number of the message about b, and the last message about b removes it.
func TestTheGoodbyeOfANodeIsSentWhateverElseItGossips(t *testing.T) {
	inBubble(t, func(s *small) {
		a, b, c := s.node(nil), s.node(nil), s.node(nil)
		time.Sleep(time.Minute)
		if count(a) != 3 {
			t.Fatalf("a sees %d members", count(a))
		}
		about := func(n *Node, incarnation uint32) *gossip.Doubt {
			return &gossip.Doubt{Incarnation: incarnation, Node: n.delegate.self, From: c.delegate.self}
		}
		a.hears(t, gossip.KindSuspect, about(b, 1))
		a.hears(t, gossip.KindDead, about(b, 1))
		a.hears(t, gossip.KindSuspect, about(c, 1))
		left := make(chan error, 1)
		begin := time.Now()
		go func() { left <- a.list.Leave(10 * time.Second) }()
		synctest.Wait()
		a.hears(t, gossip.KindAlive, &gossip.Alive{
			Incarnation: 2, Node: b.delegate.self, Addr: s.hosts[1].IP().AsSlice(), Port: 7400,
			Meta: *b.delegate.meta.Load(), Vsn: a.memberlistConfig().BuildVsnArray(),
		})
		if err := <-left; err != nil || time.Since(begin) > 2*time.Second {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
	})
}

// Neither this package nor memberlist lists it or complains about it, here or at other members.
func TestThePlaceholderIsNoMember(t *testing.T) {
	inBubble(t, func(s *small) {
		a, b := s.node(nil), s.node(nil)
		time.Sleep(10 * time.Minute)
		for _, n := range []*Node{a, b} {
			if count(n) != 2 || n.list.NumMembers() != 2 {
				t.Errorf("%s sees %d members, memberlist %d", n.ID(), count(n), n.list.NumMembers())
			}
			if got := testutil.ToFloat64(n.metrics.problems); got != 0 {
				t.Errorf("memberlist of %s has %v complaints", n.ID(), got)
			}
		}
	})
}

// memberlist accepts the placeholder in clear text while it starts, and nothing else.
func TestANodeWithAKeyIgnoresClearText(t *testing.T) {
	inBubble(t, func(s *small) {
		keyed := func(c *Config) { c.Keyring = keyring(t, 1) }
		a, b := s.node(keyed), s.node(keyed)
		time.Sleep(time.Minute)
		a.hears(t, gossip.KindDead, &gossip.Doubt{Incarnation: 1, Node: b.delegate.self, From: b.delegate.self})
		if n := a.list.NumMembers(); n != 2 || testutil.ToFloat64(a.metrics.problems) != 1 {
			t.Errorf("a sees %d members, and memberlist has %v complaints", n, testutil.ToFloat64(a.metrics.problems))
		}
	})
}
