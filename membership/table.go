package membership

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// table is the event loop's state: who is alive, in which life. It is pure: no
// lock, no clock, no goroutine.
type table struct {
	// alive holds one instance of each id, the one with the highest epoch.
	alive map[string]Member
	// floor is the highest epoch seen of an id. An older instance never comes
	// back, however late the news of it arrives.
	floor map[string]uint64
	// lost are members that went without saying so, worth looking for.
	lost map[string]lostMember
}

type lostMember struct {
	addr  string
	since time.Time
}

const (
	// maxLost bounds the members that the rejoin loop looks for, and lostFor how
	// long it does: a machine that is gone for a day comes back through a seed.
	maxLost = 64
	lostFor = 24 * time.Hour
	// maxFloors bounds the ids remembered. Ids are chosen by operators, so this
	// is far above any fleet; beyond it the oldest news could resurrect a member
	// that memberlist itself no longer tells about.
	maxFloors = 1 << 16
)

// change is what one sighting did, for logs and counters.
type change struct {
	event  string // joined, left, failed, superseded, changed
	member Member
}

func newTable() *table {
	return &table{alive: make(map[string]Member), floor: make(map[string]uint64), lost: make(map[string]lostMember)}
}

// seen adds or refreshes an instance.
func (t *table) seen(m Member) []change {
	if m.Epoch < t.floor[m.ID] {
		return nil
	}
	if _, known := t.floor[m.ID]; known || len(t.floor) < maxFloors {
		t.floor[m.ID] = m.Epoch
	}
	delete(t.lost, m.ID)

	old, known := t.alive[m.ID]
	m.Leaving = known && old.Leaving && old.Epoch == m.Epoch
	t.alive[m.ID] = m
	switch {
	case !known:
		return []change{{"joined", m}}
	case old.Epoch != m.Epoch:
		return []change{{"superseded", old}, {"joined", m}}
	case old != m:
		return []change{{"changed", m}}
	}
	return nil
}

// gone removes an instance. Whether it left or failed is known only from its
// own announcement.
func (t *table) gone(instance string, now time.Time) []change {
	m, known := t.instance(instance)
	if !known {
		return nil
	}
	delete(t.alive, m.ID)
	if m.Leaving {
		return []change{{"left", m}}
	}
	for id, l := range t.lost {
		if now.Sub(l.since) > lostFor {
			delete(t.lost, id)
		}
	}
	if len(t.lost) < maxLost {
		t.lost[m.ID] = lostMember{addr: m.GossipAddr, since: now}
	}
	return []change{{"failed", m}}
}

// announced notes that an instance is about to leave.
func (t *table) announced(id string, epoch uint64) []change {
	m, known := t.alive[id]
	if !known || m.Epoch != epoch || m.Leaving {
		return nil
	}
	m.Leaving = true
	t.alive[id] = m
	return []change{{"changed", m}}
}

func (t *table) instance(name string) (Member, bool) {
	i := strings.LastIndexByte(name, '.')
	if i < 0 {
		return Member{}, false
	}
	m, ok := t.alive[name[:i]]
	return m, ok && m.Instance() == name
}

func (t *table) members() []Member { return slices.Collect(maps.Values(t.alive)) }
