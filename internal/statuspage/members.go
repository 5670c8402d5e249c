package statuspage

import (
	"time"

	"github.com/ringway/ringway/membership"
)

// Members lists the members of a snapshot, and those that it remembers to have gone.
func Members(s *membership.Snapshot, now time.Time) []Member {
	out := make([]Member, 0, len(s.Members())+len(s.Departures()))
	for _, m := range s.Members() {
		shown := newMember(m)
		shown.State, shown.Age = Alive, now.Sub(time.UnixMilli(int64(m.Epoch)))
		if m.Leaving {
			shown.State = Leaving
		}
		shown.Self = m.ID == s.Self().ID
		out = append(out, shown)
	}
	for _, d := range s.Departures() {
		gone := newMember(d.Member)
		gone.State, gone.Age = Failed, now.Sub(d.At)
		if d.Reason == membership.Left {
			gone.State = Left
		}
		out = append(out, gone)
	}
	return out
}

func newMember(m membership.Member) Member {
	return Member{ID: m.ID, Role: string(m.Role), Datacenter: m.Datacenter, Address: m.GossipAddr, Version: m.Version}
}
