package membership

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ringway/ringway/membership/identity"
)

// table is the event loop's state: the live instances and their history. It is pure: no lock, no
// clock, no goroutine.
type table struct {
	// self is this node's instance, which needs no proof.
	self string
	// alive holds one instance of each id, the one with the highest epoch.
	alive map[string]Member
	// stayed is until when leave notices of a member are ignored; see stayWindow.
	stayed map[string]time.Time
	// outdated are instances that memberlist sees alive although a later boot of the same id is
	// known: usually the last gossip about an ended process, otherwise a process on a host whose
	// clock was set back, or a second process.
	outdated map[string]outdatedMember // by instance name
	// returned are instances that left, by the word of a notice, and that memberlist sees alive
	// again, by id. Each is one that a forged notice was about, if the instance itself states this,
	// or late gossip.
	returned map[string]Member
	// floor is the highest known epoch of an id. Gossip about an older instance does not bring it
	// back, however late it arrives; see promote for the exception.
	floor map[string]lifeFloor
	// lost are members that vanished without a leave notice and are looked for.
	lost map[string]lostMember
	// departures and burst are published in snapshots in addition to the members.
	departures departures
	burst      burst
	observers  int // in alive, without this node
}

type lifeFloor struct {
	epoch uint64
	left  bool // the instance sent a leave notice: it never comes back
}

type outdatedMember struct {
	member Member
	since  time.Time
}

type lostMember struct {
	id    string
	addr  string
	role  identity.Role
	since time.Time
}

const (
	// maxLost limits the members that the rejoin loop looks for, and lostTTL the time: a member
	// that was away for a day returns through a seed. 64 are enough, because a split heals through
	// any of them that lives: the latest stay, and relays before others, because those that ended
	// for good, such as pods that were replaced, were lost before the split.
	maxLost = 64
	lostTTL = 24 * time.Hour
	// maxFloors limits the number of ids. Operators choose ids, so the limit is far above any
	// fleet; above it, very old gossip could bring a member back that memberlist itself has
	// already forgotten.
	maxFloors = 1 << 16
	// proofOfLife is how long an outdated instance must stay alive in memberlist before it
	// replaces a later instance that is gone. A dead instance is detected sooner: suspicion lasts
	// at most half a minute in a cluster of ten.
	proofOfLife = 45 * time.Second
)

// change is the effect of one event, for logs and metrics.
type change struct {
	event  string // joined, left, failed, superseded, changed, outdated
	member Member
}

func newTable(self string) *table {
	return &table{
		self: self, alive: make(map[string]Member), stayed: make(map[string]time.Time), outdated: make(map[string]outdatedMember),
		returned: make(map[string]Member), floor: make(map[string]lifeFloor), lost: make(map[string]lostMember),
	}
}

// seen adds or updates an instance. The floor of its id decides what it is: below the floor it is
// late gossip or a second process; at the floor after a leave notice it may not come back by
// itself; in any other case it is the current one.
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
		t.returned[m.ID] = m
		return nil
	}
	return t.enter(m, now)
}

// observer returns 1 for another observer than this node.
func (t *table) observer(m Member) int {
	if m.Role == identity.RoleObserver && m.Instance() != t.self {
		return 1
	}
	return 0
}

func (t *table) census() census {
	return census{total: len(t.alive), counted: len(t.alive) - t.observers}
}

// enter makes an instance the visible instance of its id. What the table kept about the absence of
// the id ends here, so that no event counts twice.
func (t *table) enter(m Member, now time.Time) []change {
	if _, known := t.floor[m.ID]; known || len(t.floor) < maxFloors {
		t.floor[m.ID] = lifeFloor{epoch: m.Epoch}
	}
	delete(t.lost, m.ID)
	delete(t.outdated, m.Instance())
	delete(t.returned, m.ID)
	t.departures.forget(m.ID)
	t.burst.returned(m.ID)

	old, known := t.alive[m.ID]
	if known {
		t.observers -= t.observer(old)
	}
	t.observers += t.observer(m)
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

// gone removes an instance. Only its own notice shows whether it left or failed. answered reports
// whether probes of this node are answered. The burst needs the number of members before this loss,
// so it is counted first.
func (t *table) gone(instance string, answered bool, now time.Time) []change {
	delete(t.outdated, instance)
	maps.DeleteFunc(t.returned, func(_ string, m Member) bool { return m.Instance() == instance })
	m, known := t.instance(instance)
	if !known {
		return nil
	}
	before := t.census()
	delete(t.alive, m.ID)
	t.observers -= t.observer(m)
	if m.Leaving {
		t.burst.left(m.Role != identity.RoleObserver)
		t.forgetFailed(m.ID)
		t.departures.add(Departure{m, Left, now})
		return append([]change{{"left", m}}, t.promote(now)...)
	}
	t.departures.add(Departure{m, Failed, now})
	if m.Role != identity.RoleObserver || !answered {
		t.burst.failure(m.ID, before, answered, now)
	}
	for id, l := range t.lost {
		if now.Sub(l.since) > lostTTL {
			delete(t.lost, id)
		}
	}
	t.lost[m.ID] = lostMember{id: m.ID, addr: m.GossipAddr, role: m.Role, since: now}
	if len(t.lost) > maxLost {
		t.dropLost()
	}
	return append([]change{{"failed", m}}, t.promote(now)...)
}

// replaced ends the search for a lost member: another process has its address. Departures and the
// burst stay as they are, because the member is not back.
func (t *table) replaced(l lostMember) {
	if t.lost[l.id] == l {
		delete(t.lost, l.id)
	}
}

// dropLost makes room among the lost members: the oldest goes, of those that are no relays if there
// is one.
func (t *table) dropLost() {
	var victim string
	for id, l := range t.lost {
		if old := t.lost[victim]; victim == "" || old.role.Relays() && !l.role.Relays() ||
			old.role.Relays() == l.role.Relays() && l.since.Before(old.since) {
			victim = id
		}
	}
	delete(t.lost, victim)
}

// forgetFailed treats the last instance of an id as one that left: it is not looked for, never
// comes back, and does not count as a failure.
func (t *table) forgetFailed(id string) {
	if floor, known := t.floor[id]; known {
		floor.left = true
		t.floor[id] = floor
	}
	delete(t.lost, id)
	t.burst.returned(id)
}

// promote admits outdated instances whose successor is gone and that have been alive for
// proofOfLife: a process restarted on a host whose clock was set back must not be excluded
// forever. The latest instance of an id is first. This node's own instance needs no proof of life.
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

// tick applies changes that depend only on time, and reports whether tick must be called again even
// without an event.
func (t *table) tick(answered bool, now time.Time) (changes []change, again bool) {
	changes = t.promote(now)
	on := t.burst.check(t.census().counted, answered, now)
	return changes, on || len(t.outdated) > 0
}

// announced records that an instance is about to leave. The notice may arrive after memberlist's
// event, and then corrects what was recorded as a failure. Both travel on their own through gossip,
// so their order at this node shows nothing.
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

// stayWindow is how long leave notices of a member are ignored after the member has taken one back.
// It is longer than copies of the notice circulate. Without it, both messages could replace each
// other repeatedly, because each accepted message is passed on again.
const stayWindow = 5 * time.Second

// stays takes a leave notice back: the member itself reports that it is not leaving. If the member
// was already recorded as gone by that notice, its floor lets it in again.
func (t *table) stays(id string, epoch uint64, now time.Time) []change {
	m, known := t.alive[id]
	if floor := t.floor[id]; !known && floor.epoch == epoch && floor.left {
		t.floor[id] = lifeFloor{epoch: epoch}
		if back, alive := t.returned[id]; alive && back.Epoch == epoch {
			return t.enter(back, now)
		}
		return []change{{"changed", Member{ID: id, Epoch: epoch}}} // memberlist will see it alive
	}
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

func (t *table) members() []Member {
	return slices.AppendSeq(make([]Member, 0, len(t.alive)), maps.Values(t.alive))
}
