package relaypool

import (
	"cmp"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/ringway/ringway/affinity"
)

// table decides which peers are connected, which of them gets a request, and which are
// evicted.
type table struct {
	cfg   Config // Resize changes Primaries and Candidates
	least Config // as configured
	most  int    // the most primaries that were wanted since the last regular ranking
	now   time.Time
	peers map[string]*peer

	candidates []*peer       // best first
	reach      affinity.Tier // farthest tier of the candidates
	nearer     int           // usable peers of the tiers before it
	narrow     bool          // see wanted; until narrowEnd
	narrowEnd  time.Time
	rankAt     time.Time
	evicted    []*peer // evicted peers

	primaries, backups []*member
	joining            []*member   // being connected, without a place yet
	turn               int         // index of the primary that gets the next request
	due                []time.Time // when each vacant place may be filled

	links    map[linkID]*link
	lastLink linkID
	bindings bindings

	opens  []opening
	closes []linkID
	events []Event
	sooner bool // Step may be due earlier than Next

	neededAt time.Time // when a request last found that no peer is connected
}

// newTable checks the configuration and returns a table without peers.
func newTable(cfg Config) (*table, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.Uint64
	}
	t := &table{cfg: cfg, least: cfg, most: cfg.Primaries, peers: map[string]*peer{}, links: map[linkID]*link{}}
	t.bindings = newBindings(&t.cfg)
	return t, nil
}

// actions are the actions that the caller must carry out now, and the events.
type actions struct {
	Open   []opening
	Close  []linkID // connections to close, or to cancel if they are being opened
	Events []Event  // in order
	// Next is when Step is due again if no other call comes first; zero for never.
	Next time.Time
}

// Update is [Pool.Update].
func (t *table) Update(peers []Peer, now time.Time) error {
	if err := checkPeers(peers); err != nil {
		return err
	}
	t.advance(now)
	var gone []*peer
	var fresh []Peer
	moved := false
	next := make(map[string]Peer, len(peers))
	for _, p := range peers {
		next[p.ID] = p
		known := t.peers[p.ID]
		switch {
		case known == nil || !known.same(p):
			fresh = append(fresh, p)
		case known.Peer != p:
			known.Peer, moved = p, true
		}
	}
	for id, p := range t.peers {
		if q, still := next[id]; !still || !p.same(q) {
			gone = append(gone, p)
			delete(t.peers, id)
		}
	}
	// Primaries last, so that no removed backup is promoted first.
	slices.SortFunc(gone, func(a, b *peer) int {
		return cmp.Or(cmp.Compare(t.turnOf(a), t.turnOf(b)), strings.Compare(a.ID, b.ID))
	})
	slices.SortFunc(fresh, func(a, b Peer) int { return strings.Compare(a.ID, b.ID) })
	for _, p := range gone {
		t.endEviction(p)
		t.record(Event{Kind: PeerRemoved, Peer: p.ID, Detail: p.Address})
		if p.member != nil {
			t.removeMember(p.member, Removed, "it is not a peer any more")
		}
	}
	for _, p := range fresh {
		t.peers[p.ID] = t.addPeer(p)
		t.record(Event{Kind: PeerAdded, Peer: p.ID, Detail: p.Address})
	}
	var reasons []Reason
	if len(fresh) > 0 {
		reasons = append(reasons, byAddition)
	}
	if len(gone) > 0 {
		reasons = append(reasons, byRemoval)
	}
	if moved {
		reasons = append(reasons, byMove)
	}
	t.rank(reasons...)
	return nil
}

// Resize is [Pool.Resize].
func (t *table) Resize(primaries int, now time.Time) {
	t.advance(now)
	primaries = max(primaries, t.least.Primaries)
	if primaries == t.cfg.Primaries {
		return
	}
	t.cfg.Primaries, t.cfg.Candidates = primaries, t.least.Candidates+primaries-t.least.Primaries
	t.most = max(t.most, primaries)
	t.sooner = true
	t.rank()
}

// wanted returns how many primaries there are places for. When too few near peers are usable any more,
// farther ones get, for some time, a place only as far as Config.Primaries needs them: otherwise one
// near peer that restarts would move most of the requests to another place.
func (t *table) wanted() int {
	if !t.narrow {
		return t.cfg.Primaries
	}
	return min(t.cfg.Primaries, max(t.least.Primaries, t.nearer))
}

// narrowTime is longer than a restart takes, also of a whole machine.
const narrowTime = 5 * time.Minute

// adjust fits the members to the places, which may have become more or fewer.
func (t *table) adjust() {
	for _, m := range slices.Clone(t.backups) {
		if t.lacks(m.peer) {
			t.backups, t.primaries, m.role = without(t.backups, m), append(t.primaries, m), Primary
			t.record(Event{Kind: Promoted, Peer: m.peer.ID, Role: Primary, Detail: "because more peers share the requests"})
		}
	}
	for _, m := range slices.Clone(t.joining) {
		if m.replaces == nil && t.vacancies() < 0 {
			t.joining = without(t.joining, m)
			t.release(m, "", "")
		}
	}
}

// turnOf returns the peer's index among the primaries, −1 if it is not a primary.
func (t *table) turnOf(p *peer) int {
	return slices.IndexFunc(t.primaries, func(m *member) bool { return m.peer == p })
}

// addPeer creates the record of a new peer. If the same peer was removed before, it may still
// have draining connections, which count towards MaxPerPeer.
func (t *table) addPeer(p Peer) *peer {
	known := &peer{Peer: p}
	for _, l := range t.links {
		if l.member == nil && l.peer.same(p) {
			l.peer = known
			known.links++
		}
	}
	return known
}

// Step returns the actions that are due.
func (t *table) Step(now time.Time) actions {
	t.advance(now)
	t.readmit()
	t.recall()
	if !t.rankAt.After(t.now) {
		t.rank(byHealth)
		t.shrink()
		t.rankAt = t.now.Add(t.cfg.RefreshInterval + t.between(0, t.cfg.RefreshJitter))
	}
	t.moveNearer()
	for m := range t.members() {
		if m.renewing || m.renewAt.After(t.now) {
			continue
		}
		options := t.eligible()
		if len(options) == 0 || slices.Contains(t.candidates, m.peer) {
			options = append(options, m.peer)
		}
		t.renew(m, Stale, options)
	}
	t.fill()
	for m := range t.members() {
		for l := range m.spare() {
			if !l.idleAt.Add(t.cfg.IdleTimeout).After(t.now) {
				t.drain(l)
			}
		}
	}
	a := actions{Open: t.opens, Close: t.closes, Events: t.events, Next: t.next()}
	t.opens, t.closes, t.events, t.sooner = nil, nil, nil, false
	// Leave out connections that were dropped before the caller has seen them.
	a.Open = slices.DeleteFunc(a.Open, func(o opening) bool {
		_, wanted := t.links[o.Link]
		return !wanted
	})
	return a
}

// Tried is [Pool.Tried].
func (t *table) Tried() bool {
	return len(t.joining) == 0 && (len(t.primaries) > 0 || len(t.eligible()) == 0)
}

// pending reports whether there are actions or events that Step has not returned yet, or
// an earlier Next.
func (t *table) pending() bool {
	return t.sooner || len(t.opens)+len(t.closes)+len(t.events) > 0
}

// shut drains all connections and removes all peers, without events.
func (t *table) shut() {
	for _, m := range slices.Concat(t.primaries, t.backups, t.joining) {
		for _, l := range slices.Clone(m.links) {
			t.drain(l)
		}
	}
	t.primaries, t.backups, t.joining, t.evicted, t.candidates = nil, nil, nil, nil, nil
	t.peers = map[string]*peer{}
}

// readmit ends the evictions whose time is over.
func (t *table) readmit() {
	before := len(t.evicted)
	for _, p := range slices.Clone(t.evicted) {
		if !p.evictedUntil.After(t.now) {
			t.endEviction(p)
			t.record(Event{Kind: Readmitted, Peer: p.ID})
		}
	}
	if len(t.evicted) != before {
		t.rank(byHealth)
	}
}

// needed reports whether requests wait because no peer is connected. A request that waits asks
// again after each event, and every evicted peer has an event within ReplenishMax.
func (t *table) needed() bool {
	return len(t.primaries) == 0 && !t.neededAt.IsZero() && !t.neededAt.Add(t.cfg.ReplenishMax).Before(t.now)
}

// recall ends the evictions and waits while requests wait and no peer is connected: any peer
// is better than none. Only a peer that could not be connected to a moment ago is not called
// again before its recallAt.
func (t *table) recall() {
	if !t.needed() {
		return
	}
	t.due = nil
	before := len(t.evicted)
	for _, p := range slices.Clone(t.evicted) {
		if !p.recallAt.After(t.now) {
			t.endEviction(p)
			t.record(Event{Kind: Readmitted, Peer: p.ID, Detail: "requests wait and no peer is connected"})
		}
	}
	if len(t.evicted) != before {
		t.rank(byHealth)
	}
}

// moveNearer replaces members that are farther away than candidates need to be, because
// nearer peers were not available earlier. Without it the places would depend on the order
// in which peers became known.
func (t *table) moveNearer() {
	var far []*member
	for m := range t.members() {
		if m.renewing || m.nearerAt.After(t.now) || m.peer.tier(t.cfg.Datacenter, t.cfg.Region) <= t.reach {
			continue
		}
		if options := t.eligible(); len(options) > 0 {
			t.renew(m, Locality, options)
		} else if !slices.ContainsFunc(t.candidates, func(p *peer) bool { return p.member == nil || !p.member.connected() }) {
			far = append(far, m)
		}
	}
	for _, m := range far {
		t.removeMember(m, Locality, "every nearer peer has a place")
	}
}

// renew starts to connect a successor for a member, drawn from options. The member keeps
// its place until the successor is connected.
func (t *table) renew(m *member, because Reason, options []*peer) {
	options = slices.DeleteFunc(options, func(p *peer) bool { return p.links >= t.cfg.MaxPerPeer })
	if len(options) == 0 || !t.makeRoom() {
		t.postpone(m, because)
		return
	}
	m.renewing = true
	if p, how := t.draw(options); p != m.peer {
		t.join(p, how, m, because)
	} else {
		t.record(Event{Kind: Chosen, Peer: p.ID, Tier: p.tier(t.cfg.Datacenter, t.cfg.Region), Role: m.role, Detail: how + ", to replace itself"})
		t.newLink(m).renews = true
	}
}

// vacancies returns the number of places without a member and without a peer that is being
// connected for one.
func (t *table) vacancies() int {
	n := max(t.wanted(), len(t.primaries)) + t.cfg.Backups - len(t.primaries) - len(t.backups)
	for _, m := range t.joining {
		if m.replaces == nil {
			n--
		}
	}
	return n
}

// surplus reports whether there are more primaries than places, which have become fewer.
func (t *table) surplus() bool { return len(t.primaries) > t.wanted() }

// shrink removes the primaries that were too many since the last regular ranking, last those that
// rank best. While too few near peers are usable, it removes the far ones that are too many now.
func (t *table) shrink() {
	most := t.most
	if t.narrow {
		most = t.wanted()
	}
	rank := func(m *member) int {
		switch i := slices.Index(t.candidates, m.peer); {
		case t.narrow && m.peer.tier(t.cfg.Datacenter, t.cfg.Region) < t.reach:
			return -1
		case i >= 0:
			return i
		}
		return len(t.candidates)
	}
	worst := slices.SortedStableFunc(slices.Values(t.primaries), func(a, b *member) int { return cmp.Compare(rank(b), rank(a)) })
	for _, m := range worst {
		if len(t.primaries) > most && !m.renewing {
			t.removeMember(m, Surplus, "fewer peers share the requests")
		}
	}
	t.most = t.cfg.Primaries
}

// removeMember removes a member from the pool. A backup is promoted immediately in place of a
// primary, unless that is surplus; the vacant place is filled after a wait.
func (t *table) removeMember(m *member, why Reason, detail string) {
	switch m.role {
	case NoRole:
		t.joining = without(t.joining, m)
		if m.replaces != nil {
			t.postpone(m.replaces, m.reason)
		}
	case Primary:
		i := slices.Index(t.primaries, m)
		if t.surplus() {
			t.primaries = slices.Delete(t.primaries, i, i+1)
			t.release(m, why, detail)
			return
		}
		if len(t.backups) > 0 {
			t.primaries[i], t.backups = t.backups[0], t.backups[1:]
			t.primaries[i].role = Primary
			t.release(m, why, detail)
			t.record(Event{Kind: Promoted, Peer: t.primaries[i].peer.ID, Role: Primary, Detail: "in place of " + m.peer.ID})
			t.scheduleFill()
			return
		}
		t.primaries = slices.Delete(t.primaries, i, i+1)
	case Backup:
		t.backups = without(t.backups, m)
	}
	t.release(m, why, detail)
	t.scheduleFill()
}

// release drains the connections of a member that has been removed from its list, and
// frees its peer.
func (t *table) release(m *member, why Reason, detail string) {
	if m.role != NoRole {
		t.record(Event{Kind: Evicted, Peer: m.peer.ID, Role: m.role, Reason: why, Detail: detail})
	}
	m.role = NoRole
	m.peer.member = nil
	t.bindings.forget(m.peer)
	for _, l := range slices.Clone(m.links) {
		t.drain(l)
	}
	for _, j := range t.joining {
		if j.replaces == m {
			j.replaces = nil // the successor fills the vacancy
		}
	}
}

// scheduleFill schedules when the next vacant place may be filled.
func (t *table) scheduleFill() {
	t.due = append(t.due, t.now.Add(t.between(t.cfg.ReplenishMin, t.cfg.ReplenishMax)))
}

func (t *table) list(role Role) *[]*member {
	if role == Primary {
		return &t.primaries
	}
	return &t.backups
}

// members yields the members with a place, primaries first. The loop body may change the
// lists.
func (t *table) members() iter.Seq[*member] {
	return slices.Values(slices.Concat(t.primaries, t.backups))
}

// next returns when Step is due again if no other call comes first.
func (t *table) next() time.Time {
	at := t.rankAt
	sooner := func(other time.Time) {
		if other.Before(at) {
			at = other
		}
	}
	for _, p := range t.evicted {
		sooner(p.evictedUntil)
		if t.needed() {
			sooner(p.recallAt)
		}
	}
	for _, d := range t.due {
		sooner(d)
	}
	for m := range t.members() {
		if !m.renewing {
			sooner(m.renewAt)
			if m.nearerAt.After(t.now) {
				sooner(m.nearerAt)
			}
		}
		for l := range m.spare() {
			sooner(l.idleAt.Add(t.cfg.IdleTimeout))
		}
	}
	return at
}

func (t *table) record(e Event) {
	e.Time = t.now
	t.events = append(t.events, e)
}

func (t *table) advance(now time.Time) {
	if now.After(t.now) {
		t.now = now
	}
}

func (t *table) random(n int) int { return int(t.cfg.Rand() % uint64(n)) }

// unit returns a random number of [0, 1).
func (t *table) unit() float64 { return float64(t.cfg.Rand()>>11) / (1 << 53) }

func (t *table) between(low, high time.Duration) time.Duration {
	return low + time.Duration(t.unit()*float64(high-low))
}

func without[T comparable](list []T, x T) []T {
	return slices.DeleteFunc(list, func(other T) bool { return other == x })
}
