package api

import (
	"time"

	"github.com/ringway/ringway/membership"
)

// MemberState is the state of a member in a list.
type MemberState string

// The states of members.
const (
	MemberAlive MemberState = "alive"
	// MemberDraining is alive, and out of rotation until an operator takes it back.
	MemberDraining MemberState = "draining"
	MemberLeaving  MemberState = "leaving"
	MemberLeft     MemberState = "left"
	MemberFailed   MemberState = "failed"
	// MemberUnproven is reported by gossip without a certificate that was checked.
	MemberUnproven MemberState = "unproven"
)

// ListedMember is a member in the list of all.
type ListedMember struct {
	membership.Member
	State MemberState `json:"state"`
	// Since is when a living member started, when another member left or failed, or since
	// when an unproven member is ignored.
	Since time.Time `json:"since"`
	// Reason is why an unproven member is ignored, and the remedy.
	Reason string `json:"reason,omitempty"`
}

// ListMembers lists the living, the departed and the unproven members, in this order. A
// departed member that is back is listed as living only.
func ListMembers(present Members, departed []membership.Departure) []ListedMember {
	out := make([]ListedMember, 0, len(present.Members)+len(departed)+len(present.Unproven))
	living := make(map[string]bool, len(present.Members))
	for _, m := range present.Members {
		living[m.ID] = true
		state := MemberAlive
		switch {
		case m.Leaving:
			state = MemberLeaving
		case m.Draining:
			state = MemberDraining
		}
		out = append(out, ListedMember{Member: m, State: state, Since: time.UnixMilli(int64(m.Epoch)).UTC()})
	}
	for _, d := range departed {
		if !living[d.Member.ID] {
			out = append(out, ListedMember{Member: d.Member, State: MemberState(d.Reason), Since: d.At})
		}
	}
	for _, u := range present.Unproven {
		out = append(out, ListedMember{Member: membership.Member{ID: u.ID, Epoch: u.Epoch, GossipAddr: u.GossipAddr}, State: MemberUnproven, Since: u.Since, Reason: u.Reason})
	}
	return out
}
