package membership

import (
	"testing"
	"time"
)

// Without a packet only exchanges of states announce a member, and the regular ones are a minute
// apart.
func TestOfMembersThatStartTogetherTheFirstSoonSeesTheLast(t *testing.T) {
	inBubble(t, func(s *small) {
		s.network.SetLoss(1)
		s.node(nil)
		first := s.node(nil)
		time.Sleep(againAfter * 3 / 4)
		s.node(nil)
		time.Sleep(3 * againAfter)
		if n := count(first); n != 3 {
			t.Errorf("it sees %d members of 3", n)
		}
	})
}
