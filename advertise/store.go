package advertise

import (
	"cmp"
	"container/list"
	"errors"
	"slices"
	"time"

	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// Limits of what the store keeps about members that are not alive.
const (
	orphanAge   = 10 * time.Minute // longer than a restart or a short partition, after which the record still counts
	floorAge    = 24 * time.Hour
	futureEpoch = 10 * time.Minute // how far ahead of this node's clock the epoch of an unknown member may be

	defaultMaxOrphans     = 16_384
	defaultMaxOrphanBytes = 64 << 20
	defaultMaxFloors      = 65_536
)

// buckets is the number of parts in which the set of records is compared. More buckets would make
// the digest longer and the lists shorter. With 256 a digest is 1 kB, and a bucket of 10,000
// workers has about 40 entries.
const buckets = 256

// outcome is the result of a merge; it is the value of a metric label.
type outcome string

const (
	applied outcome = "applied" // stored, newer than the previous record
	old     outcome = "old"     // already known, or older
	foreign outcome = "foreign" // in the name of this node, not written by it
	refused outcome = "refused" // too many records of members that are not alive

	// Results without a merge.
	limited    outcome = "limited"  // newer, but its author publishes too often
	wrongRole  outcome = "role"     // of a member whose role does not write such records
	forged     outcome = "forged"   // not signed by its author
	unproven   outcome = "unproven" // of an author whose certificate is not known yet
	hinted     outcome = "hint"     // a hint of a record too large for gossip
	overflowed outcome = "overflow" // dropped because the mailbox was full
)

// outcomeOf returns the metric label of an error from decoding.
func outcomeOf(err error) outcome {
	var bad *invalid
	switch {
	case !errors.As(err, &bad):
		return "invalid_malformed"
	case bad.reason == string(forged):
		return forged
	}
	return outcome("invalid_" + bad.reason)
}

// storeConfig holds the limits of a store. Zero fields mean the defaults.
type storeConfig struct {
	maxOrphans     int // records of members that are not alive
	maxOrphanBytes int // their encoded bytes together
	maxFloors      int
}

// store holds the newest record of every instance. It is a state machine without
// goroutine, lock or clock: the caller serialises the calls and passes the time in.
//
// Merging is idempotent, commutative and associative while no limit is reached: for every
// instance the record with the largest (sequence, hash) stays. Therefore reordering, loss
// and repetition on the network are harmless.
//
// The summary covers only the records of live workers. Two members may keep different records
// of dead workers and still have the same root. The records of live relays have a summary of
// their own, because members of earlier releases do not keep them.
type store struct {
	cfg     storeConfig
	entries map[instance]*entry
	members *membership.Snapshot
	summary
	relays   summary
	attached summary // of attached workers, whose records other members may not know; no exchange compares them

	// Records of instances that are not live: their member is gone, or this node has not seen it
	// yet.
	orphans     *list.List // of orphan, oldest first
	orphanAt    map[instance]*list.Element
	orphanBytes int

	// What remains of a dropped record. A peer that was cut off for hours still has the record, and
	// must not bring it back.
	floors  *list.List // of floor, oldest first
	floorAt map[instance]*list.Element

	// dropped is called with the instance of each record that is dropped.
	dropped func(instance)

	self    instance
	written stamp // the newest record this node wrote itself
}

// summary is the hash of a set of records, whole and in parts.
type summary struct {
	root    uint64
	buckets [buckets]uint64
}

type orphan struct {
	instance instance
	since    time.Time
	seen     bool // its member was alive once
	bytes    int
}

// floor holds the stamp of a record that has been dropped, so that an older record of the
// instance is still refused.
type floor struct {
	instance instance
	stamp    stamp
	since    time.Time
}

func newStore(cfg storeConfig) *store {
	cfg.maxOrphans = cmp.Or(cfg.maxOrphans, defaultMaxOrphans)
	cfg.maxOrphanBytes = cmp.Or(cfg.maxOrphanBytes, defaultMaxOrphanBytes)
	cfg.maxFloors = cmp.Or(cfg.maxFloors, defaultMaxFloors)
	return &store{
		cfg: cfg, entries: map[instance]*entry{}, members: membership.NewSnapshot(0, "", nil),
		orphans: list.New(), orphanAt: map[instance]*list.Element{},
		floors: list.New(), floorAt: map[instance]*list.Element{}, dropped: func(instance) {},
	}
}

// take stores a record if it is newer. Its signature must have been checked. take returns
// the entry that the store now holds for that instance, nil if there is none.
//
// The role can be checked only while the member is known. A record that comes before its member is
// stored, and mayWrite is asked again when the member appears.
func (s *store) take(e *entry, now time.Time) (*entry, outcome, error) {
	if err := s.inTime(e.instance(), now); err != nil {
		return nil, outcomeOf(err), err
	}
	if m, known := s.members.Get(e.record.NodeID); known && m.Epoch == e.record.Epoch && !mayWrite(m.Role, e) {
		return nil, wrongRole, refuse(string(wrongRole), "record of %q, which is a %s: only workers offer services, and only relays state their traffic and their plan", m.ID, m.Role)
	}
	if e.instance() == s.self && e.stamp.compare(s.written) > 0 {
		// Another process with the id of this node wrote it. The own record must exceed
		// its sequence.
		return e, foreign, nil
	}
	e, result := s.put(e, now)
	return e, result, nil
}

// updates reports whether an entry is a newer record that a live member has signed.
func (s *store) updates(e *entry) bool {
	return e.raw[0] == signedHead && s.isAlive(e.instance()) && !s.has(e.instance(), e.stamp)
}

// has reports whether the store already holds a record of that stamp or a newer one.
func (s *store) has(key instance, at stamp) bool {
	known := s.entries[key]
	return known != nil && at.compare(known.stamp) <= 0
}

// inTime refuses an instance whose epoch is too far in the future.
func (s *store) inTime(key instance, now time.Time) error {
	if s.fromTheFuture(key, now) {
		return refuse("future_epoch", "record of %q: epoch %d is more than %v ahead of our clock", key.id, key.epoch, futureEpoch)
	}
	return nil
}

// write stores this node's own record. Its stamp is kept apart from the entry, so that take
// recognises a record that another process wrote in the name of this node.
func (s *store) write(e *entry, now time.Time) *entry {
	s.self, s.written = e.instance(), e.stamp
	kept, _ := s.put(e, now)
	return kept
}

// put stores a record if it is newer than the one of its instance, or than the floor of a dropped
// one. Whether the member was alive once is kept over replacements, because it decides
// whether the record leaves a floor.
func (s *store) put(e *entry, now time.Time) (*entry, outcome) {
	key := e.instance()
	known := s.entries[key]
	if s.has(key, e.stamp) {
		return known, old
	}
	seen := false
	if at, ok := s.orphanAt[key]; ok {
		seen = at.Value.(orphan).seen
	}
	if at, ok := s.floorAt[key]; ok {
		// An equal stamp is accepted: it is the last record of a member that has returned.
		if e.stamp.compare(at.Value.(floor).stamp) < 0 {
			return nil, old
		}
		s.dropFloor(at)
		seen = true
	}
	if known != nil {
		s.forget(known)
	}
	s.entries[key] = e
	if s.live(e) {
		s.toggle(e, s.isAttached(e.record.NodeID))
		return e, applied
	}
	s.addOrphan(e, orphan{instance: key, since: now, seen: seen, bytes: len(e.raw)})
	s.evictOrphans(now)
	if s.entries[key] == nil {
		return nil, refused
	}
	return e, applied
}

// setMembers sets the newest snapshot and returns the ids of members whose endpoints may
// have changed.
//
// A record leaves its sum with the properties that its member had, and enters one with those that
// it has: role and attachment decide which sum that is.
func (s *store) setMembers(next *membership.Snapshot, now time.Time) (changed []string) {
	changes := membership.Diff(s.members, next)
	s.members = next
	for _, m := range slices.Concat(changes.Left, changes.Failed) {
		changed = append(changed, m.ID)
		s.removeLive(m, now)
	}
	for _, r := range slices.Concat(changes.Superseded, changes.Changed) {
		changed = append(changed, r.New.ID)
		s.removeLive(r.Old, now)
		s.addLive(r.New)
	}
	for _, m := range changes.Joined {
		changed = append(changed, m.ID)
		s.addLive(m)
	}
	s.evictOrphans(now)
	return changed
}

// addLive adds the record of a member that has appeared to its summary. One that a member of this
// role may not write stays an orphan: it is never visible, and expires.
func (s *store) addLive(m membership.Member) {
	if e := s.entries[instance{m.ID, m.Epoch}]; e != nil && mayWrite(m.Role, e) {
		s.dropOrphan(e.instance())
		s.toggle(e, m.Attached)
	}
}

// removeLive removes the record of a member that is gone from its summary and makes it an
// orphan.
func (s *store) removeLive(m membership.Member, now time.Time) {
	if e := s.entries[instance{m.ID, m.Epoch}]; e != nil && mayWrite(m.Role, e) {
		s.toggle(e, m.Attached) // removes it: a second toggle undoes the first
		s.addOrphan(e, orphan{instance: e.instance(), since: now, seen: true, bytes: len(e.raw)})
	}
}

// writes reports whether members of a role write records.
func writes(role identity.Role) bool {
	return role == identity.RoleWorker || role == identity.RoleRelay
}

// mayWrite reports whether members of a role write such a record: workers offer services, and
// relays state their traffic and their plan.
func mayWrite(role identity.Role, e *entry) bool {
	return role == identity.RoleWorker && !e.record.Relay || role == identity.RoleRelay && e.record.Relay
}

// writer returns a live member that writes records.
func (s *store) writer(id string) (membership.Member, bool) {
	m, ok := s.members.Get(id)
	return m, ok && writes(m.Role)
}

// visible returns the record of a live member, nil if there is none.
func (s *store) visible(id string) (*entry, membership.Member) {
	m, ok := s.writer(id)
	if !ok {
		return nil, m
	}
	if e := s.entries[instance{id, m.Epoch}]; e != nil && mayWrite(m.Role, e) {
		return e, m
	}
	return nil, m
}

// expire turns old orphans into floors and drops old floors. Both lists are in the order of time,
// so only what expires is read.
func (s *store) expire(now time.Time) {
	for front := s.orphans.Front(); front != nil && now.Sub(front.Value.(orphan).since) >= orphanAge; front = s.orphans.Front() {
		s.dropRecord(front.Value.(orphan), now)
	}
	for front := s.floors.Front(); front != nil && now.Sub(front.Value.(floor).since) >= floorAge; front = s.floors.Front() {
		s.dropFloor(front)
	}
}

// fromTheFuture reports whether an epoch is too far ahead of this node's clock. A live
// member's epoch is always accepted: otherwise a relay whose own clock is behind would
// find no endpoints.
func (s *store) fromTheFuture(key instance, now time.Time) bool {
	limit := now.Add(futureEpoch).UnixMilli()
	return limit >= 0 && key.epoch > uint64(limit) && !s.isAlive(key)
}

func (s *store) isAlive(key instance) bool {
	m, ok := s.writer(key.id)
	return ok && m.Epoch == key.epoch
}

// isAttached reports whether a live member is an attached worker.
func (s *store) isAttached(id string) bool {
	m, ok := s.members.Get(id)
	return ok && m.Attached
}

// live reports whether the author of a record is a live member.
func (s *store) live(e *entry) bool {
	m, ok := s.members.Get(e.record.NodeID)
	return ok && m.Epoch == e.record.Epoch && mayWrite(m.Role, e)
}

// toggle adds an entry to its summary, or removes it if it is there: exclusive or does both. So
// the sum of a set does not depend on the order in which its records came, and a change costs the
// same in a store of any size.
func (s *store) toggle(e *entry, attached bool) {
	sum := &s.summary
	switch {
	case e.record.Relay:
		sum = &s.relays
	case attached:
		sum = &s.attached
	}
	mix := e.mix()
	sum.root ^= mix
	sum.buckets[bucketOf(e.record.NodeID)] ^= mix
}

// forget removes an entry from its summary or from the orphans, before it is replaced.
func (s *store) forget(e *entry) {
	if s.live(e) {
		s.toggle(e, s.isAttached(e.record.NodeID))
		return
	}
	s.dropOrphan(e.instance())
}

func (s *store) addOrphan(e *entry, o orphan) {
	s.orphanAt[e.instance()] = s.orphans.PushBack(o)
	s.orphanBytes += o.bytes
}

func (s *store) dropOrphan(key instance) {
	if at, ok := s.orphanAt[key]; ok {
		s.orphanBytes -= at.Value.(orphan).bytes
		s.orphans.Remove(at)
		delete(s.orphanAt, key)
	}
}

// evictOrphans drops the orphans that have waited longest. Those whose member was alive once leave a
// floor, which still refuses older records.
func (s *store) evictOrphans(now time.Time) {
	for s.orphans.Len() > s.cfg.maxOrphans || s.orphanBytes > s.cfg.maxOrphanBytes {
		s.dropRecord(s.orphans.Front().Value.(orphan), now)
	}
}

// dropRecord drops the record of an orphan. It leaves a floor only if the member was alive
// once: invented ids must not displace the floors of real members.
func (s *store) dropRecord(o orphan, now time.Time) {
	e := s.entries[o.instance]
	s.dropOrphan(o.instance)
	delete(s.entries, o.instance)
	s.dropped(o.instance)
	if !o.seen {
		return
	}
	s.floorAt[o.instance] = s.floors.PushBack(floor{instance: o.instance, stamp: e.stamp, since: now})
	for s.floors.Len() > s.cfg.maxFloors {
		s.dropFloor(s.floors.Front())
	}
}

func (s *store) dropFloor(at *list.Element) {
	delete(s.floorAt, at.Value.(floor).instance)
	s.floors.Remove(at)
}

// target is one endpoint of one life of a worker.
type target struct {
	instance
	service, address string
}

func (t target) String() string { return t.service + " of " + t.id + " at " + t.address }

// unreachableSet is the set of endpoints that this node found dead although their worker is alive,
// each with the sequence of the record that offered it: a newer record is a new offer and
// not affected. It has no lock and no clock; the loop of the catalogue owns it, so adding an
// endpoint cannot race with its removal. The zero value is empty.
type unreachableSet map[target]uint64

// add marks the offer of that sequence and reports whether it was not marked before.
func (h *unreachableSet) add(t target, sequence uint64) bool {
	if h.has(t, sequence) {
		return false
	}
	if *h == nil {
		*h = unreachableSet{}
	}
	(*h)[t] = sequence
	return true
}

// has reports whether the offer of that sequence is unreachable.
func (h unreachableSet) has(t target, sequence uint64) bool {
	at, marked := h[t]
	return marked && at == sequence
}

// remove removes the mark and reports whether there was one.
func (h unreachableSet) remove(t target) bool {
	_, marked := h[t]
	delete(h, t)
	return marked
}
