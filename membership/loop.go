package membership

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/ringway/ringway/internal/publish"
	"github.com/ringway/ringway/membership/internal/gossip"
	"github.com/ringway/ringway/membership/internal/trust"
)

const (
	// proofInterval is how often certificates are checked again, because they can expire.
	proofInterval = 5 * time.Second
	// intervalPerMember is the default of PublishInterval, for each member: see there.
	intervalPerMember = 5 * time.Microsecond
	// firstInterval applies to a node that starts: the first members come together, and a
	// consumer that chooses among them must not get only the first one.
	firstInterval = 50 * time.Millisecond
	// tickInterval is how often the table is checked while time alone can change it.
	tickInterval = time.Second
)

// loop owns the table. It is the only writer of snapshots.
//
// Each turn takes one cause (events, a notice, a certificate, time), and then does the same for all
// of them: what time alone changes is applied, and a snapshot is published if it is due. So a
// change by time cannot be missed between two events, and one pacer delays all causes.
func (n *Node) loop(ctx context.Context, state *table) {
	var tick <-chan time.Time   // set while time can change the table
	var expiry <-chan time.Time // with certificates, which can expire
	pacer, unpublished := publish.NewPacer(), false
	pacer.Begin(cmp.Or(n.cfg.PublishInterval, firstInterval))
	if n.guard != nil {
		ticker := time.NewTicker(proofInterval)
		defer ticker.Stop()
		expiry = ticker.C
	}
	for {
		changed := false
		select {
		case <-ctx.Done():
			return
		case <-n.mailbox.wake:
			changed = n.apply(state, n.mailbox.take())
		case notice := <-n.leaves:
			changed = n.handleLeave(state, notice)
		case <-expiry:
			changed = n.checkProofs(state)
		case <-n.recheck:
			changed = n.checkProofs(state)
		case lost := <-n.replaced:
			state.replaced(lost)
			n.storeLost(state)
		case <-tick:
			tick = nil
		case <-pacer.C:
		}
		degraded := state.burst.on
		changes, again := state.tick(n.answered(state), time.Now())
		changed = n.report(changes) || changed
		n.publishOutdated(state)
		if again && tick == nil {
			tick = time.After(tickInterval)
		}
		unpublished = unpublished || changed || degraded != state.burst.on
		if unpublished && pacer.May() {
			unpublished = false
			pacer.Begin(cmp.Or(n.cfg.PublishInterval, time.Duration(len(state.alive))*intervalPerMember))
			n.publish(state)
		}
	}
}

// answered reports whether other members answer the probes of this node.
func (n *Node) answered(state *table) bool {
	return n.probes.answered(len(state.alive), n.list.GetHealthScore(), time.Now())
}

// checkProofs checks all proofs again and reports whether a member has lost its proof or has one
// again. It compares with the last snapshot: memberlist has no event for a certificate that
// expires, is denied, or becomes known.
func (n *Node) checkProofs(state *table) bool {
	n.guard.Sweep()
	for _, m := range state.members() {
		_, shown := n.Snapshot().Get(m.ID)
		if shown != (n.guard.Lapsed(m.Instance()) == "") {
			return true
		}
	}
	return false
}

// apply passes memberlist's events to the table. Metadata is decoded here and not in the callbacks,
// which run under memberlist's lock.
func (n *Node) apply(state *table, events []event) (changed bool) {
	now := time.Now()
	for _, s := range events {
		if s.gone && s.name == n.delegate.self {
			continue // memberlist's echo of Leave; this node is alive until Close
		}
		if s.gone {
			changed = n.report(state.gone(s.name, n.answered(state), now)) || changed
			continue
		}
		m, err := gossip.DecodeMetadata(s.meta)
		if err != nil || gossip.InstanceName(m.ID, m.Epoch) != s.name {
			n.metrics.packetDropped(trust.DropMetadata) // an update with metadata that NotifyAlive would refuse
			continue
		}
		seen := memberOf(m, s.addr)
		seen.ServiceNames = n.serviceNames(s)
		changed = n.report(state.seen(seen, now)) || changed
	}
	return changed
}

// serviceNames returns the services in the certificate that signed the metadata of an event.
func (n *Node) serviceNames(e event) string {
	switch {
	case n.guard == nil:
		return ""
	case e.name == n.delegate.self:
		return n.cfg.Identity.Claims().Services
	}
	return n.guard.ServiceNames(e.meta)
}

// report logs and counts the changes of the table.
func (n *Node) report(changes []change) bool {
	for i, c := range changes {
		n.metrics.events.WithLabelValues(c.event).Inc()
		m := c.member
		if c.event == "superseded" && m.ID == n.cfg.ID {
			n.metrics.duplicates.Add(1)
			other := changes[i+1].member // the instance that superseded it has joined
			n.logger.Error("the cluster knows a later boot of this node's id and follows that one: another process runs under it (give each process its own --id), or this host's clock went backwards (then this node is admitted when the later boot is gone)",
				"id", m.ID, "epoch", n.epoch, "other", other.GossipAddr, "other_epoch", other.Epoch)
			continue
		}
		if c.event == "outdated" {
			if m.ID == n.cfg.ID && m.Instance() != n.delegate.self {
				n.wg.Go(func() { n.confirmRival(n.transport.ctx, m) })
			}
			// Normal after a restart: gossip about the previous instance continues for some time.
			n.logger.Debug("news of an instance that booted before the one this node knows", "member", m.ID, "epoch", m.Epoch, "addr", m.GossipAddr)
			continue
		}
		args := []any{"member", m.ID, "role", m.Role, "addr", m.GossipAddr}
		if c.event == "failed" { // members of one host or zone fail together
			n.lines.Gather(slog.LevelWarn, "member failed", m.ID, args...)
			continue
		}
		level := slog.LevelInfo
		if c.event == "changed" { // not only the set of members
			level = slog.LevelDebug
		}
		n.lines.Log(level, "member "+c.event, args...)
	}
	return len(changes) > 0
}

// publish makes a snapshot of the table. The table keeps a member whose proof has lapsed, and only
// snapshots leave it out: so it is back as soon as its proof is, without any gossip about it.
func (n *Node) publish(state *table) {
	var version uint64 = 1
	old := n.snapshots.Load()
	if old != nil {
		version = old.Version() + 1
	}
	members := state.members()
	if n.guard != nil {
		members = slices.DeleteFunc(members, func(m Member) bool { return n.leaveOut(old, m) })
	}
	s := NewSnapshot(version, n.cfg.ID, members).WithDepartures(state.departures.list(time.Now(), state.burst.on), state.burst.on)
	if old != nil && old.Degraded() != s.Degraded() {
		if s.Degraded() {
			n.logger.Warn("lost contact with a large part of the cluster: this node may be cut off and keeps its peers", "members", len(s.Members()), "failed", len(state.burst.failed))
		} else {
			n.logger.Info("the view of the cluster is reliable again", "members", len(s.Members()))
		}
	}
	n.storeLost(state)
	n.alive.Store(int64(len(s.Members())))
	n.metrics.published(s)
	n.snapshots.Store(s)
}

// storeLost shows the rejoin loop for which members to look.
func (n *Node) storeLost(state *table) {
	lost := slices.Collect(maps.Values(state.lost))
	n.lost.Store(&lost)
}

// leaveOut reports whether a member is left out because its identity is not proven any more. old is
// the snapshot before, nil without one.
func (n *Node) leaveOut(old *Snapshot, m Member) bool {
	reason := n.guard.Lapsed(m.Instance())
	if reason == "" {
		return false
	}
	n.guard.LeaveOut(trust.Unproven{ID: m.ID, Epoch: m.Epoch, GossipAddr: m.GossipAddr, Reason: reason})
	if old == nil {
		return true
	}
	if before, shown := old.Get(m.ID); shown && before.Epoch == m.Epoch { // else reported before, or never in a view
		n.metrics.events.WithLabelValues("unproven").Inc()
		n.lines.Log(slog.LevelWarn, "member left out: its identity is not proven any more", "member", m.ID, "addr", m.GossipAddr, "reason", reason)
	}
	return true
}

// Snapshot returns the newest snapshot, nil before Start. One atomic load.
func (n *Node) Snapshot() *Snapshot { return n.snapshots.Load() }

// Watch delivers the current snapshot and then always the newest. A slow reader
// skips snapshots. The channel is closed when ctx ends.
func (n *Node) Watch(ctx context.Context) <-chan *Snapshot { return n.snapshots.Watch(ctx) }
