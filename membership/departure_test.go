package membership

import (
	"context"
	"testing"
	"time"

	"github.com/ringway/ringway/membership/internal/gossip"
)

// Without certificates a holder of the gossip key can send a goodbye in the name of another member,
// to all but that member. It lasted a minute and a half. With a leave notice it did not end.
func TestAForgedGoodbyeEndsAMemberForSeconds(t *testing.T) {
	for name, noticed := range map[string]bool{"of memberlist alone": false, "with a leave notice": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(s *small) {
				for range 5 {
					s.node(nil)
				}
				time.Sleep(time.Minute)
				victim, others := s.nodes[4], s.nodes[:4]
				if count(s.nodes[0]) != 5 {
					t.Fatalf("a sees %d members", count(s.nodes[0]))
				}
				s.network.Blackhole(s.hosts[4].IP()) // it does not hear of it by chance
				for _, n := range others {
					if noticed {
						n.receiveNotice(leaveNotice{id: victim.ID(), epoch: victim.Epoch()}.payload(), false)
					}
				}
				for _, n := range others {
					for incarnation := range uint32(8) {
						n.hears(t, gossip.KindDead, &gossip.Doubt{Incarnation: 1 + incarnation, Node: victim.delegate.self, From: victim.delegate.self})
					}
				}
				began, ended := time.Now(), false
				time.Sleep(1500 * time.Millisecond)
				s.network.Heal()
				for {
					time.Sleep(50 * time.Millisecond)
					all := true
					for _, n := range others {
						all = all && count(n) == 5
						ended = ended || count(n) == 4
					}
					if all && ended || time.Since(began) > 10*time.Minute {
						break
					}
				}
				if took := time.Since(began); !ended || took > 12*time.Second {
					t.Errorf("ended: %v; back after %v, want a few seconds", ended, took)
				} else {
					t.Logf("back after %v", took)
				}
			})
		})
	}
}

// A member that left is asked, too, while it still answers probes, and stays gone.
func TestAMemberThatLeftStaysGoneWhileItStillAnswers(t *testing.T) {
	inBubble(t, func(s *small) {
		for range 5 {
			s.node(nil)
		}
		time.Sleep(time.Minute)
		if err := s.nodes[4].Leave(context.Background()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		for range 2000 {
			time.Sleep(50 * time.Millisecond)
			for _, n := range s.nodes[:4] {
				if d, _ := n.Snapshot().Departed("e"); count(n) != 4 || d.Reason != Left {
					t.Fatalf("%s sees %d members, e %s", n.ID(), count(n), d.Reason)
				}
			}
		}
	})
}
