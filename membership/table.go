package membership

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
)

// table is the event loop's state: who is alive, in which life. It is pure: no
// lock, no clock, no goroutine.
type table struct {
	// self is this node's instance, which needs no proof that it is alive.
	self string
	// alive holds one instance of each id, the one with the highest epoch.
	alive map[string]Member
	// stayed says until when no announcement of a member's leave is believed; see stayWindow.
	stayed map[string]time.Time
	// outdated are instances that memberlist sees alive although a later boot of
	// the same id was seen: mostly the last traces of a life that ended, else a
	// process on a host whose clock went backwards, or a second process.
	outdated map[string]outdatedMember // by instance name
	// floor is the highest epoch seen of an id. News of an older instance does
	// not bring it back, however late it arrives; see promote for the exception.
	floor map[string]lifeFloor
	// lost are members that went without saying so, worth looking for.
	lost map[string]lostMember
	// departures and burst are what snapshots tell beside the members.
	departures departures
	burst      burst
}

type lifeFloor struct {
	epoch uint64
	left  bool // that instance said goodbye: it never comes back
}

type outdatedMember struct {
	member Member
	since  time.Time
}

type lostMember struct {
	addr  string
	role  Role
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
	// proofOfLife is how long an outdated instance must stay alive in memberlist's
	// eyes before it takes the place of a later one that is gone. A dead one is
	// found out sooner: suspicion lasts at most half a minute in a cluster of ten.
	proofOfLife = 45 * time.Second
)

// change is what one sighting did, for logs and counters.
type change struct {
	event  string // joined, left, failed, superseded, changed, outdated
	member Member
}

func newTable(self string) *table {
	return &table{
		self: self, alive: make(map[string]Member), stayed: make(map[string]time.Time), outdated: make(map[string]outdatedMember),
		floor: make(map[string]lifeFloor), lost: make(map[string]lostMember),
	}
}

// seen adds or refreshes an instance.
func (t *table) seen(m Member, now time.Time) []change {
	floor := t.floor[m.ID]
	switch {
	case m.Epoch < floor.epoch:
		instance := m.Instance()
		known, again := t.outdated[instance]
		if !again {
			known.since = now
		}
		known.member = m
		t.outdated[instance] = known
		if again {
			return nil
		}
		return append([]change{{"outdated", m}}, t.promote(now)...)
	case m.Epoch == floor.epoch && floor.left:
		return nil
	}
	return t.enter(m, now)
}

// enter makes an instance the visible one of its id.
func (t *table) enter(m Member, now time.Time) []change {
	if _, known := t.floor[m.ID]; known || len(t.floor) < maxFloors {
		t.floor[m.ID] = lifeFloor{epoch: m.Epoch}
	}
	delete(t.lost, m.ID)
	delete(t.outdated, m.Instance())
	t.departures.forget(m.ID)
	t.burst.returned(m.ID)

	old, known := t.alive[m.ID]
	m.Leaving = known && old.Leaving && old.Epoch == m.Epoch
	t.alive[m.ID] = m
	switch {
	case !known:
		return []change{{"joined", m}}
	case old.Epoch != m.Epoch:
		t.outdated[old.Instance()] = outdatedMember{old, now}
		return []change{{"superseded", old}, {"joined", m}}
	case old != m:
		return []change{{"changed", m}}
	}
	return nil
}

// gone removes an instance. Whether it left or failed is known only from its
// own announcement. answered says whether probes of this node are.
func (t *table) gone(instance string, answered bool, now time.Time) []change {
	delete(t.outdated, instance)
	m, known := t.instance(instance)
	if !known {
		return nil
	}
	before := len(t.alive)
	delete(t.alive, m.ID)
	if m.Leaving {
		t.forgetFailed(m.ID)
		t.departures.add(Departure{m, Left, now})
		return append([]change{{"left", m}}, t.promote(now)...)
	}
	t.departures.add(Departure{m, Failed, now})
	t.burst.failure(m.ID, before, answered, now)
	for id, l := range t.lost {
		if now.Sub(l.since) > lostFor {
			delete(t.lost, id)
		}
	}
	if len(t.lost) < maxLost {
		t.lost[m.ID] = lostMember{addr: m.GossipAddr, role: m.Role, since: now}
	}
	return append([]change{{"failed", m}}, t.promote(now)...)
}

// forgetFailed marks the last life of an id as one that said goodbye: it is not
// looked for, never comes back, and is no sign of trouble.
func (t *table) forgetFailed(id string) {
	if floor, known := t.floor[id]; known {
		floor.left = true
		t.floor[id] = floor
	}
	delete(t.lost, id)
	t.burst.returned(id)
}

// promote lets outdated instances in whose successor is gone and who have proven
// that they are alive: a process restarted on a host whose clock went backwards
// must not stay out for ever. The latest of an id is first.
func (t *table) promote(now time.Time) []change {
	var changes []change
	for _, name := range slices.SortedFunc(maps.Keys(t.outdated), func(a, b string) int {
		return cmp.Compare(t.outdated[b].member.Epoch, t.outdated[a].member.Epoch)
	}) {
		o := t.outdated[name]
		if _, taken := t.alive[o.member.ID]; taken {
			continue
		}
		if name == t.self || now.Sub(o.since) >= proofOfLife {
			changes = append(changes, t.enter(o.member, now)...)
		}
	}
	return changes
}

// tick does what time alone brings about, and reports whether the table needs to
// be asked again although nothing happens.
func (t *table) tick(answered bool, now time.Time) (changes []change, again bool) {
	changes = t.promote(now)
	on := t.burst.check(len(t.alive), answered, now)
	return changes, on || len(t.outdated) > 0
}

// announced notes that an instance is about to leave. The news may come after
// memberlist's, and then corrects what was taken for a failure.
func (t *table) announced(id string, epoch uint64, now time.Time) []change {
	if i := t.departures.find(id); i >= 0 {
		if d := &t.departures.recent[i]; d.Reason == Failed && d.Member.Epoch == epoch {
			d.Reason = Left
			t.forgetFailed(id)
			return []change{{"left", d.Member}}
		}
	}
	m, known := t.alive[id]
	if !known || m.Epoch != epoch || m.Leaving || now.Before(t.stayed[id]) {
		return nil
	}
	m.Leaving = true
	t.alive[id] = m
	return []change{{"changed", m}}
}

// stayWindow is how long an announcement is not believed that its member has taken back:
// longer than copies of it travel. Without it the two would chase each other for as long
// as each that is believed is passed on anew.
const stayWindow = 5 * time.Second

// stays takes an announcement back: the member itself says that it is not leaving.
func (t *table) stays(id string, epoch uint64, now time.Time) []change {
	m, known := t.alive[id]
	if !known || m.Epoch != epoch {
		return nil
	}
	maps.DeleteFunc(t.stayed, func(_ string, until time.Time) bool { return !now.Before(until) })
	t.stayed[id] = now.Add(stayWindow)
	if !m.Leaving {
		return nil
	}
	m.Leaving = false
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
