package membership

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/bits"
	"time"

	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/membership/internal/gossip"
	"github.com/ringway/ringway/membership/internal/trust"
)

const (
	// topicLeave carries announcements of members that are about to leave. Users of this
	// package may use the topics from 16 on.
	topicLeave byte = 1
	// topicStay carries the answer of a member that receives a false announcement that it leaves.
	topicStay byte = 2
)

// leaveNotice announces that an instance is about to leave, or, as an answer to a notice that it
// did not send, that it stays.
type leaveNotice struct {
	id        string
	epoch     uint64
	stay      bool
	signature []byte // after the payload; empty without certificates
}

func (l leaveNotice) payload() []byte {
	return gossip.AppendText(binary.BigEndian.AppendUint64(nil, l.epoch), l.id)
}

// topic returns the topic of the notice and the kind of statement that its signature covers.
func (l leaveNotice) topic() (byte, Statement) {
	if l.stay {
		return topicStay, statementStay
	}
	return topicLeave, statementLeave
}

// handleLeave records a notice and passes it on if it is new: the leaving member has time for only a
// few packets, so other members must spread the notice. Only a notice that changed the table is
// passed on, so each member queues it once, and it ends when all members know it.
func (n *Node) handleLeave(state *table, notice leaveNotice) (changed bool) {
	topic, kind := notice.topic()
	payload := notice.payload()
	if err := n.Verify(notice.id, kind, payload, notice.signature); err != nil {
		n.metrics.packetDropped(trust.DropForged)
		n.logger.Debug("notice dropped", "err", err)
		return false
	}
	if notice.id == n.cfg.ID && notice.epoch == n.epoch && !n.leaving.Load() {
		n.contradict(notice)
		return false
	}
	if n.guard != nil && !notice.stay {
		n.guard.RecordLeave(notice.id, notice.epoch)
	}
	if notice.stay {
		changed = n.report(state.stays(notice.id, notice.epoch, time.Now()))
	} else {
		changed = n.report(state.announced(notice.id, notice.epoch, time.Now()))
	}
	if changed && notice.id != n.cfg.ID {
		_ = n.Broadcast(topic, notice.id, append(payload, notice.signature...)) // cannot fail: it is short
	}
	return changed
}

// contradict answers a notice that this node is about to leave, which it never sent. It is for a
// notice what the refutation of SWIM is for a doubt.
func (n *Node) contradict(notice leaveNotice) {
	if notice.stay {
		return // this node's own notice, passed on by another member
	}
	n.metrics.packetDropped(trust.DropForged)
	n.logger.Warn("received a forged notice that this node is leaving: another process has the gossip key", "id", n.cfg.ID)
	answer := leaveNotice{id: n.cfg.ID, epoch: n.epoch, stay: true}
	_ = n.announce(answer)
}

// announce signs and broadcasts a notice about this node.
func (n *Node) announce(notice leaveNotice) error {
	topic, kind := notice.topic()
	payload := notice.payload()
	return n.Broadcast(topic, notice.id, append(payload, n.Sign(kind, payload)...))
}

// receiveNotice passes a notice to the event loop. It never blocks: it runs on memberlist's receive
// goroutine. The signature is checked by the event loop, for the same reason.
func (n *Node) receiveNotice(payload []byte, stay bool) {
	r := &gossip.FieldReader{Rest: payload}
	epoch, id := r.Uint64(), r.Text()
	if r.Failed || identity.CheckName(id) != nil || len(r.Rest) > MaxSignature {
		n.metrics.packetDropped(trust.DropMessageFormat)
		return
	}
	select {
	case n.leaves <- leaveNotice{id, epoch, stay, r.Rest}:
	default:
		n.metrics.packetDropped(dropQueueFull) // the member will be considered failed
	}
}

// Leave announces that this node leaves and waits, at most LeaveTimeout or until ctx ends, until
// the announcement is sent. The node still answers probes until Close, so that no member suspects
// it in the meantime.
//
// memberlist's own goodbye ends an instance immediately, and the notice before it is what makes
// that a departure: the table takes an end without a notice for a failure, which members look for
// and which counts towards a degraded snapshot.
func (n *Node) Leave(ctx context.Context) error {
	n.state.Lock()
	ready := n.started && !n.closed
	n.state.Unlock()
	if !ready {
		return nil
	}
	n.depart.Lock()
	defer n.depart.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(n.closing, cancel)()
	if n.closing.Err() != nil {
		return nil
	}
	n.leaving.Store(true)
	notice := leaveNotice{id: n.cfg.ID, epoch: n.epoch}
	if err := n.announce(notice); err != nil {
		return err
	}
	payload := notice.payload()
	n.receiveNotice(append(payload, n.Sign(statementLeave, payload)...), false) // also for this node's own view
	timeout := n.cfg.LeaveTimeout
	if deadline, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(deadline))
	}
	// The announcement needs a few gossip rounds before memberlist's own message; otherwise
	// other members would consider this a crash. Wait until it is sent, and then until the
	// members that received it have passed it on. Each of the two steps has half of the time.
	announced := time.Now()
	n.waitForBroadcasts(ctx, timeout/2)
	if alone := n.alive.Load() < 2; !alone {
		rounds := 1 + bits.Len64(uint64(n.alive.Load()))/2 // each round multiplies the informed members by at least four
		pause(ctx, min(time.Duration(rounds)*gossipInterval, timeout/2-time.Since(announced)))
	}
	if n.closing.Err() != nil {
		return nil
	}
	n.logger.Info("leaving the cluster", "id", n.cfg.ID)
	left := max(timeout/2, time.Millisecond)
	if ctx.Err() != nil {
		left = time.Millisecond
	}
	if err := n.list.Leave(left); err != nil {
		return fmt.Errorf("leave: %w: the others will notice by probing", err)
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// waitForBroadcasts returns when the queue is sent, there is no other member, or time is up.
func (n *Node) waitForBroadcasts(ctx context.Context, limit time.Duration) {
	deadline := time.After(limit)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for n.delegate.broadcasts.len() > 0 && n.alive.Load() > 1 {
		select {
		case <-tick.C:
		case <-deadline:
			return
		case <-ctx.Done():
			return
		}
	}
}
