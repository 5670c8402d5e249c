package membership

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/ringway/ringway/membership/identity"
)

// probeFunc exchanges hellos with an address. Its error is errNoOther where a join would be useless.
type probeFunc func(context.Context, netip.AddrPort) error

// errNoOther is the error of an address that answers and leads to no other member.
var errNoOther = errors.New("no other member is there")

// probe exchanges hellos with addr. Unlike memberlist's join it returns typed errors.
func (n *Node) probe(ctx context.Context, addr netip.AddrPort) error {
	_, err := n.reach(ctx, addr)
	return err
}

// probeUnseen is probe for a node that looks for missing members: one that is seen needs no join. It
// may be a seed that has a second address.
func (n *Node) probeUnseen(ctx context.Context, addr netip.AddrPort) error {
	peer, err := n.reach(ctx, addr)
	if err != nil {
		return err
	}
	if m, seen := n.Snapshot().Get(peer.ID); seen && m.Epoch == peer.Epoch {
		return fmt.Errorf("join %s: %w: %s answers, which is seen at %s", addr, errNoOther, peer.ID, m.GossipAddr)
	}
	return nil
}

func (n *Node) reach(ctx context.Context, addr netip.AddrPort) (Peer, error) {
	conn, peer, err := n.transport.dial(ctx, addr.String(), protocolProbe)
	n.checkLost(addr, peer, err)
	if err != nil {
		return Peer{}, err
	}
	_ = conn.Close() // only the hello was needed; an error means that the peer closed first
	if peer.ID == n.cfg.ID && peer.Epoch == n.epoch {
		n.own.add(addr, n.cfg.RejoinInterval)
		return Peer{}, fmt.Errorf("join %s: %w: this node itself answers: name another member in --join", addr, errNoOther)
	}
	return peer, nil
}

// checkLost reports the lost members of an address at which another process answers: the loop
// looks for these no more.
func (n *Node) checkLost(addr netip.AddrPort, peer Peer, err error) {
	for _, lost := range *n.lost.Load() {
		if lost.addr != addr.String() || !answersInsteadOf(lost.id, peer, err) {
			continue
		}
		select {
		case n.replaced <- lost:
		default: // the next attempt shows the same
		}
	}
}

// answersInsteadOf reports whether a hello shows that a member is not at an address any more: a
// member with another id answered or refused, or one of another cluster or environment. Other
// refusals are no evidence: a member may have missed a rotation of keys or certificates.
func answersInsteadOf(id string, peer Peer, err error) bool {
	if err == nil {
		return peer.ID != id
	}
	field, node := "", ""
	var refusal *RefusalError
	var certificate *identity.RefusalError
	switch {
	case errors.As(err, &certificate):
		field, node = string(certificate.Field), certificate.Node
	case errors.As(err, &refusal):
		field, node = refusal.Field, refusal.Node
	}
	return field == fieldCluster || field == fieldEnvironment || node != "" && node != id
}

// ownAddrs are addresses at which this node has reached itself, each with the time until which it
// is no seed. The time is short: the address may be one that several members share.
type ownAddrs struct {
	mu    sync.Mutex
	until map[netip.AddrPort]time.Time
}

func (o *ownAddrs) add(addr netip.AddrPort, lasting time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.until == nil {
		o.until = make(map[netip.AddrPort]time.Time)
	}
	o.until[addr] = time.Now().Add(lasting)
}

// has reports whether an address is known to lead to this node, and forgets one whose time is over.
func (o *ownAddrs) has(addr netip.AddrPort) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	until, known := o.until[addr]
	if known && !time.Now().Before(until) {
		delete(o.until, addr)
		known = false
	}
	return known
}
