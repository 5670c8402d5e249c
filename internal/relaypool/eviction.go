package relaypool

import (
	"fmt"
	"time"

	"github.com/ringway/ringway/internal/outlier"
)

// minLife is how long a connection must have been open for its peer to stay a candidate.
// Otherwise a peer that accepts and closes would cause a tight loop.
const minLife = time.Second

// Lost reports that an open connection broke or takes no more requests. Requests in flight
// may continue. A peer without another open connection loses its place.
func (t *table) Lost(id linkID, err error, now time.Time) {
	t.advance(now)
	l := t.links[id]
	if l == nil || !l.open || l.member == nil {
		return
	}
	m := l.member
	t.drain(l)
	if m.connected() {
		return
	}
	why := fmt.Sprintf("connection lost: %v", err)
	if t.now.Sub(l.openedAt) < minLife {
		t.setAside(m.peer, why)
	}
	t.removeMember(m, Lost, why)
	t.rank(byHealth)
}

// evictPeer evicts a peer for min(MaxEviction, 2^k s)·U(0.5, 1): until then it is not a
// candidate.
func (t *table) evictPeer(p *peer, why string) {
	p.evictions++
	t.evictFor(p, p.evictions, why)
}

// setAside evicts a peer that could not be connected to, always for the time of a first
// eviction. Until it accepts a connection it gets no request that could fail. It is in the
// list of peers, so it is alive for others: with a longer time the pool would notice late
// that it accepts connections again.
func (t *table) setAside(p *peer, why string) {
	t.evictFor(p, 1, why)
	p.recallAt = t.now.Add(t.between(t.cfg.ReplenishMin, t.cfg.ReplenishMax))
}

func (t *table) evictFor(p *peer, k int, why string) {
	p.reason = why
	p.evictedUntil = t.now.Add(outlier.Eviction(k, t.cfg.MaxEviction, t.unit()))
	t.evicted = append(t.evicted, p)
}

func (t *table) endEviction(p *peer) {
	t.evicted = without(t.evicted, p)
	p.evictedUntil = time.Time{}
}

// evict evicts a connected member for its health.
func (t *table) evict(m *member, why Reason, detail string) {
	if t.now.Sub(m.since) > t.cfg.MaxEviction {
		m.peer.evictions = 0 // after MaxEviction in its place, k starts at 0 again
	}
	t.evictPeer(m.peer, detail)
	t.removeMember(m, why, detail)
	t.rank(byHealth)
}
