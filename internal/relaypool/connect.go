package relaypool

import (
	"fmt"
	"slices"
	"time"
)

// Opened reports that a connection is open.
func (t *table) Opened(id linkID, now time.Time) {
	t.advance(now)
	l := t.links[id]
	if l == nil || l.open {
		return
	}
	l.open, l.openedAt, l.idleAt = true, t.now, t.now
	m := l.member
	if m.role == NoRole {
		t.admit(m)
		return
	}
	if !l.renews {
		return
	}
	for _, other := range slices.Clone(m.links) {
		if other != l && other.open {
			t.drain(other)
		}
	}
	t.settle(m)
	t.record(Event{Kind: Refreshed, Peer: m.peer.ID, Role: m.role, Reason: Stale, Detail: "a new connection to the same peer"})
}

// admit gives a newly connected member its place.
func (t *table) admit(m *member) {
	t.joining = without(t.joining, m)
	m.peer.health.reset()
	t.settle(m)
	if old := m.replaces; old != nil {
		m.replaces, m.role = nil, old.role
		list := t.list(m.role)
		(*list)[slices.Index(*list, old)] = m
		t.record(Event{Kind: Connected, Peer: m.peer.ID, Role: m.role, Detail: "in place of " + old.peer.ID})
		t.release(old, m.reason, "replaced by "+m.peer.ID)
		t.adjust() // it may be nearer than a backup that was not promoted
		return
	}
	switch {
	case t.lacks(m.peer):
		m.role = Primary
	case len(t.backups) < t.cfg.Backups:
		m.role = Backup
	default: // nearer peers have become usable meanwhile
		t.release(m, "", "")
		return
	}
	list := t.list(m.role)
	*list = append(*list, m)
	t.record(Event{Kind: Connected, Peer: m.peer.ID, Role: m.role})
}

// lacks reports whether a primary is missing that the peer should be. A peer beyond the reach should only
// as far as Config.Primaries needs it: a nearer one that counts as usable again may still refuse.
func (t *table) lacks(p *peer) bool {
	n := t.wanted()
	if p.tier(t.cfg.Datacenter, t.cfg.Region) > t.reach {
		n = min(n, t.least.Primaries)
	}
	return len(t.primaries) < n
}

// settle starts the age of a member's place.
func (t *table) settle(m *member) {
	m.since, m.renewing = t.now, false
	m.renewAt = t.now.Add(t.between(t.cfg.MaxAge/10*9, t.cfg.MaxAge))
}

// OpenFailed reports that a connection could not be opened.
func (t *table) OpenFailed(id linkID, err error, now time.Time) {
	t.advance(now)
	l := t.links[id]
	if l == nil || l.open {
		return
	}
	m := l.member
	l.unlink()
	t.drop(l)
	t.record(Event{Kind: ConnectFailed, Peer: m.peer.ID, Role: m.role, Err: err})
	switch {
	case m.role == NoRole:
		t.joining = without(t.joining, m)
		m.peer.member = nil
		if m.replaces != nil {
			t.postpone(m.replaces, m.reason)
		} else {
			t.scheduleFill()
		}
		t.setAside(m.peer, fmt.Sprintf("connecting failed: %v", err))
		t.rank(byHealth)
	case l.renews:
		t.postpone(m, Stale)
	default:
		m.peer.health.failure(t.now)
		t.evictIfBad(m, t.failing)
	}
}

// postpone schedules the next attempt of a renewal. A failed move to a nearer peer does
// not change when the member is renewed for its age.
func (t *table) postpone(m *member, because Reason) {
	m.renewing = false
	again := &m.renewAt
	if because == Locality {
		again = &m.nearerAt
	}
	*again = t.now.Add(t.cfg.ReplenishMax)
}

// fill draws peers for the vacancies whose wait has ended.
func (t *table) fill() {
	t.due = slices.DeleteFunc(t.due, func(at time.Time) bool { return !at.After(t.now) })
	for n := t.vacancies() - len(t.due); n > 0; n-- {
		options := t.eligible()
		if len(options) == 0 || !t.makeRoom() {
			return
		}
		p, how := t.draw(options)
		t.join(p, how, nil, "")
	}
}

// eligible returns the candidates without a place to which a connection may be opened.
func (t *table) eligible() []*peer {
	var out []*peer
	for _, p := range t.candidates {
		if p.member == nil && !p.evicted() && p.links < t.cfg.MaxPerPeer {
			out = append(out, p)
		}
	}
	return out
}

func (t *table) join(p *peer, how string, replaces *member, because Reason) {
	m := &member{peer: p, replaces: replaces, reason: because}
	p.member = m
	t.joining = append(t.joining, m)
	t.record(Event{Kind: Chosen, Peer: p.ID, Tier: p.tier(t.cfg.Datacenter, t.cfg.Region), Detail: how})
	t.newLink(m)
}
