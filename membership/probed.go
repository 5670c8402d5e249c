package membership

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/ringway/ringway/membership/internal/gossip"
)

// probeReply is an instance that answered a nonce, with its address.
type probeReply struct {
	id    string
	epoch uint64
	addr  string
}

// newsDelay is how long gossip about a member may take after its first packet.
const newsDelay = 2 * time.Second

// joinProbed joins members that send packets to this node but that it does not see. A member that
// restarts without a living seed depends on this: the others have not noticed the restart and
// do not look for it, and its own gossip is considered old and not repeated before the next
// exchange of full states.
func (n *Node) joinProbed(ctx context.Context) {
	for {
		var e probeReply
		select {
		case <-ctx.Done():
			return
		case e = <-n.probed:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(newsDelay):
		}
		addr, err := netip.ParseAddrPort(e.addr)
		m, seen := n.Snapshot().Get(e.id)
		if err != nil || seen && m.Epoch >= e.epoch || n.guard != nil && n.guard.HasLeft(gossip.InstanceName(e.id, e.epoch)) {
			continue
		}
		// With certificates a goodbye needs the signature of the member, so there is nothing to
		// ask.
		if n.guard == nil {
			n.askDeparted(e)
		}
		n.logger.Debug("joining a member that sends packets and is not seen", "member", e.id, "addr", e.addr)
		_, _ = n.joinAny(ctx, []netip.AddrPort{addr}, 1, n.probe) // errors are counted
	}
}

// hearProbed passes a member that lives to joinProbed.
func (n *Node) hearProbed(id string, epoch uint64, addr string) {
	select {
	case n.probed <- probeReply{id, epoch, addr}:
	default: // a later packet, or another member, will bring this one as well
	}
}

// hearDeparted notes a member that departed and still sends packets. Without certificates any
// process with the gossip key can end a member by a message in its name, which the member itself
// does not get; but the member goes on to probe the others.
func (n *Node) hearDeparted(from string) {
	s := n.Snapshot()
	if s == nil {
		return
	}
	for _, d := range s.Departures() {
		if d.Member.GossipAddr != from || time.Since(d.At) < newsDelay { // its last packets
			continue
		}
		if !slices.ContainsFunc(s.Members(), func(m Member) bool { return m.GossipAddr == from }) { // else the address has a new owner
			n.hearProbed(d.Member.ID, d.Member.Epoch, from)
		}
	}
}

// askDeparted passes its leave notice to a member that left. If it did not, it contradicts, and
// answers the exchange of states that follows.
func (n *Node) askDeparted(e probeReply) {
	d, departed := n.Snapshot().Departed(e.id)
	if !departed || d.Reason != Left || d.Member.Epoch != e.epoch {
		return
	}
	message := append([]byte{messageFormat, topicLeave}, leaveNotice{id: e.id, epoch: e.epoch}.payload()...)
	if err := n.list.SendToAddress(memberlist.Address{Addr: e.addr, Name: gossip.InstanceName(e.id, e.epoch)}, message); err != nil {
		n.logger.Debug("cannot ask a member that left whether it did", "member", e.id, "err", err)
	}
}
