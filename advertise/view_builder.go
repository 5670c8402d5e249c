package advertise

import (
	"cmp"
	"container/list"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/ring"
)

const (
	knownAge    = 24 * time.Hour // how long a service without endpoints stays known
	maxVanished = 4096           // how many such names are remembered
)

// viewBuilder joins the store with the live members, one service at a time: a
// change costs in proportion to the services it touches, not to the cluster.
// Published slices are never written again; a touched service gets a new one.
type viewBuilder struct {
	store    *store
	services map[string][]Endpoint
	names    []string
	namesOld bool                     // names must be made anew
	shared   bool                     // a view holds the services map
	offers   map[string][]string      // service names by worker, as in services now
	dirty    map[string]idSet         // service -> workers whose offer may have changed
	vanished *list.List               // of vanishedService, oldest first
	gone     map[string]*list.Element // the same by name
	version  uint64
	count    int
}

type idSet map[string]struct{}

type vanishedService struct {
	name  string
	since time.Time
}

func newViewBuilder(s *store) *viewBuilder {
	return &viewBuilder{
		store: s, services: map[string][]Endpoint{}, offers: map[string][]string{}, dirty: map[string]idSet{},
		vanished: list.New(), gone: map[string]*list.Element{},
	}
}

// touch notes that what the worker offers may have changed.
func (b *viewBuilder) touch(id string) {
	mark := func(service string) {
		ids := b.dirty[service]
		if ids == nil {
			ids = idSet{}
			b.dirty[service] = ids
		}
		ids[id] = struct{}{}
	}
	for _, name := range b.offers[id] {
		mark(name)
	}
	e, _ := b.store.visible(id)
	if e == nil {
		delete(b.offers, id)
		return
	}
	names := make([]string, len(e.record.Services))
	for i, s := range e.record.Services {
		names[i] = s.Name
		mark(s.Name)
	}
	b.offers[id] = names
}

// build returns the next view.
func (b *viewBuilder) build(members *membership.Snapshot, now time.Time) *View {
	if b.shared && (len(b.dirty) > 0 || b.expiring(now)) {
		b.services = maps.Clone(b.services)
		b.shared = false
	}
	for name, ids := range b.dirty {
		b.rebuild(name, ids, now)
	}
	clear(b.dirty)
	b.expire(now)
	if b.namesOld {
		b.names = slices.Sorted(maps.Keys(b.services))
		b.namesOld = false
	}
	b.version++
	b.shared = true
	return &View{version: b.version, checksum: b.store.root, services: b.services, names: b.names, count: b.count, members: members}
}

// rebuild takes the endpoints of ids out of the service's list and merges in what
// they are now. Both lists are in ring order, so one pass does.
func (b *viewBuilder) rebuild(name string, ids idSet, now time.Time) {
	before, known := b.services[name]
	fresh := b.current(name, ids)
	if unchanged(before, ids, fresh) {
		return // its watchers keep the slice they have
	}
	after := make([]Endpoint, 0, len(before)+len(fresh))
	kept := 0 // before[kept:i] is what is still to be copied
	seed := ring.Hash(name, 0)
	for i := range before {
		if _, touched := ids[before[i].NodeID]; touched {
			after, fresh = mergeRun(after, before[kept:i], fresh, seed)
			kept = i + 1
		}
	}
	after, fresh = mergeRun(after, before[kept:], fresh, seed)
	after = append(after, fresh...)

	b.count += len(after) - len(before)
	if len(after) > 0 {
		b.services[name] = slices.Clip(after)
		b.recall(name)
		b.namesOld = b.namesOld || !known
		return
	}
	if known {
		b.services[name] = nil
		b.remember(name, now)
	}
}

// unchanged reports whether the endpoints of ids in before are just those in
// fresh: the worker's record changed in what it says of other services.
func unchanged(before []Endpoint, ids idSet, fresh []Endpoint) bool {
	for i := range before {
		if _, touched := ids[before[i].NodeID]; !touched {
			continue
		}
		if len(fresh) == 0 || !before[i].equal(&fresh[0]) {
			return false
		}
		fresh = fresh[1:]
	}
	return len(fresh) == 0
}

func (e *Endpoint) equal(o *Endpoint) bool {
	return e.Service == o.Service && e.NodeID == o.NodeID && e.Epoch == o.Epoch && e.Address == o.Address && e.Protocol == o.Protocol &&
		e.Weight == o.Weight && e.Slots == o.Slots && e.State == o.State && e.Version == o.Version && slices.Equal(e.Tags, o.Tags) &&
		e.Datacenter == o.Datacenter && e.Region == o.Region
}

// mergeRun appends run and those of fresh that belong before its end. A long run
// is copied in pieces: only the places where something goes in are searched.
func mergeRun(to, run, fresh []Endpoint, seed uint64) (merged, rest []Endpoint) {
	for len(fresh) > 0 {
		at, _ := slices.BinarySearchFunc(run, fresh[0].NodeID, func(e Endpoint, id string) int {
			return compareOnRing(e.NodeID, id, seed)
		})
		if at == len(run) {
			break
		}
		to = append(append(to, run[:at]...), fresh[0])
		run, fresh = run[at:], fresh[1:]
	}
	return append(to, run...), fresh
}

// compareOnRing is the order of ring.Order under the seed of its key.
func compareOnRing(a, b string, seed uint64) int {
	if c := cmp.Compare(ring.Hash(a, seed), ring.Hash(b, seed)); c != 0 {
		return c
	}
	return strings.Compare(a, b)
}

// current lists the endpoints of one service on those workers, in ring order.
func (b *viewBuilder) current(name string, ids idSet) []Endpoint {
	offering := make(map[string]Endpoint, len(ids))
	for id := range ids {
		e, m := b.store.visible(id)
		if e == nil {
			continue
		}
		i := slices.IndexFunc(e.record.Services, func(s Service) bool { return s.Name == name })
		if i < 0 {
			continue
		}
		s := e.record.Services[i]
		if m.Leaving {
			s.State = Draining
		}
		offering[id] = Endpoint{
			Service: name, NodeID: id, Epoch: m.Epoch, Address: s.Address, Protocol: s.Protocol, Weight: s.Weight,
			Slots: s.Slots, State: s.State, Version: s.Version, Tags: s.Tags, Datacenter: m.Datacenter, Region: m.Region,
		}
	}
	out := make([]Endpoint, 0, len(offering))
	for _, id := range ring.Order(name, slices.Collect(maps.Keys(offering))) {
		out = append(out, offering[id])
	}
	return out
}

func (b *viewBuilder) remember(name string, now time.Time) {
	if _, already := b.gone[name]; already {
		return
	}
	b.gone[name] = b.vanished.PushBack(vanishedService{name, now})
	if b.vanished.Len() > maxVanished {
		b.forgetOldest()
	}
}

func (b *viewBuilder) recall(name string) {
	if at, ok := b.gone[name]; ok {
		b.vanished.Remove(at)
		delete(b.gone, name)
	}
}

func (b *viewBuilder) expiring(now time.Time) bool {
	front := b.vanished.Front()
	return front != nil && now.Sub(front.Value.(vanishedService).since) >= knownAge
}

func (b *viewBuilder) expire(now time.Time) {
	for b.expiring(now) {
		b.forgetOldest()
	}
}

func (b *viewBuilder) forgetOldest() {
	name := b.vanished.Front().Value.(vanishedService).name
	b.recall(name)
	delete(b.services, name)
	b.namesOld = true
}
