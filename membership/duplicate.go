package membership

import (
	"context"
	"net/netip"
	"sync"
	"time"
)

const (
	// maxDuplicatesAsked limits the instances that one call of Duplicates contacts, and
	// duplicateTimeout the wait for each.
	maxDuplicatesAsked = 32
	duplicateTimeout   = time.Second
)

// Duplicate is an id that two running processes share.
type Duplicate struct {
	ID string
	// Addr is the gossip address of the instance in the snapshot, the one that booted last.
	// Other is the address of the instance that is left out.
	Addr, Other string
}

// Duplicates contacts the superseded instances that gossip still reports as alive. Those that
// answer share their id with another process. It takes at most a second. Gossip alone does not show
// it: after a restart it continues to report the former instance for some time.
func (n *Node) Duplicates(ctx context.Context) []Duplicate {
	s, outdated := n.Snapshot(), n.outdated.Load()
	if s == nil || outdated == nil {
		return nil
	}
	found := make([]*Duplicate, min(len(*outdated), maxDuplicatesAsked))
	var wg sync.WaitGroup
	for i, m := range (*outdated)[:len(found)] {
		shown, known := s.Get(m.ID)
		if !known || shown.Epoch <= m.Epoch {
			continue
		}
		asked := m
		if m.Instance() == n.delegate.self {
			asked = shown // this node is the instance that is left out
		}
		wg.Go(func() {
			if n.isAlive(ctx, asked) {
				found[i] = &Duplicate{ID: m.ID, Addr: shown.GossipAddr, Other: m.GossipAddr}
			}
		})
	}
	wg.Wait()
	var out []Duplicate
	for _, d := range found {
		if d != nil {
			out = append(out, *d)
		}
	}
	return out
}

// duplicateAddr returns Status.DuplicateAddr.
func (n *Node) duplicateAddr() string {
	s := n.Snapshot()
	if s == nil {
		return ""
	}
	if self := s.Self(); self.ID != "" && self.Epoch != n.epoch {
		return self.GossipAddr
	}
	outdated, rival := n.outdated.Load(), n.rival.Load()
	if outdated == nil || rival == nil {
		return ""
	}
	for _, m := range *outdated {
		if m.Instance() == rival.Instance() {
			return rival.GossipAddr
		}
	}
	return ""
}

// isAlive reports whether an instance answers at its address. After a restart another instance
// of the same id answers there. Only the epoch distinguishes it.
func (n *Node) isAlive(ctx context.Context, m Member) bool {
	if _, err := netip.ParseAddrPort(m.GossipAddr); err != nil || m.GossipAddr == n.Addr() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, duplicateTimeout)
	defer cancel()
	conn, peer, err := n.transport.dial(ctx, m.GossipAddr, protocolProbe)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return peer.ID == m.ID && peer.Epoch == m.Epoch
}

// confirmRival checks whether an earlier instance of this node's own id is alive. Just after a
// restart this is usually the previous process, which does not answer.
func (n *Node) confirmRival(ctx context.Context, m Member) {
	if !n.isAlive(ctx, m) {
		n.logger.Debug("an earlier life of this node does not answer", "epoch", m.Epoch, "addr", m.GossipAddr)
		return
	}
	n.rival.Store(&m)
	n.metrics.duplicates.Add(1)
	n.logger.Error("another process runs under this node's id: the cluster follows this one, which booted later; give each process its own --id, or stop the other",
		"id", m.ID, "other", m.GossipAddr, "other_epoch", m.Epoch)
}

// publishOutdated publishes the superseded instances for other goroutines.
func (n *Node) publishOutdated(state *table) {
	if old := n.outdated.Load(); len(state.outdated) == 0 && (old == nil || len(*old) == 0) {
		return
	}
	now := make([]Member, 0, len(state.outdated))
	for _, o := range state.outdated {
		now = append(now, o.member)
	}
	n.outdated.Store(&now)
}
