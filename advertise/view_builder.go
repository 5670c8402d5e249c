package advertise

import (
	"container/list"
	"slices"
	"strings"
	"time"
	"unique"

	iradix "github.com/hashicorp/go-immutable-radix/v2"

	"github.com/ringway/ringway/membership"
)

const (
	knownAge    = 24 * time.Hour // how long a service without endpoints stays known
	maxVanished = 4096           // how many such names are remembered
)

// viewBuilder joins the store with the live members, one worker at a time: a
// change costs in proportion to the services it touches, not to the cluster.
// What a view holds is never written again; a touched service gets new endpoints.
type viewBuilder struct {
	store    *store
	rules    *admission               // which offers become endpoints
	hidden   hidden                   // endpoints that this node cannot connect to
	services *iradix.Tree[*Endpoints] // as in the last view
	offers   map[string][]*Endpoint   // by worker, sorted by name: what services has of it
	touched  idSet                    // workers whose offer may have changed since
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

func newViewBuilder(s *store, a *admission) *viewBuilder {
	return &viewBuilder{
		store: s, rules: a, services: iradix.New[*Endpoints](), offers: map[string][]*Endpoint{}, touched: idSet{},
		vanished: list.New(), gone: map[string]*list.Element{},
	}
}

// touch notes that what the worker offers may have changed.
func (b *viewBuilder) touch(id string) { b.touched[id] = struct{}{} }

// build returns the next view, and of the services that it shows differently what
// they are now.
func (b *viewBuilder) build(members *membership.Snapshot, now time.Time) (v *View, changed []*Endpoints) {
	services, names := b.services.Txn(), b.services.Len()
	for name, changes := range b.changes(now) {
		before, known := services.Get([]byte(name))
		if !known {
			before = newEndpoints(name)
		}
		after := before.with(changes)
		if _, replaced := services.Insert([]byte(name), after); !replaced {
			names++
		}
		changed = append(changed, after)
		b.count += after.Len() - before.Len()
		if after.Len() == 0 {
			b.remember(name, now)
		} else {
			b.recall(name)
		}
	}
	for b.expiring(now) || b.vanished.Len() > maxVanished || names > b.rules.Rules.MaxServices && b.vanished.Len() > 0 {
		name := b.vanished.Front().Value.(vanishedService).name
		b.recall(name)
		services.Delete([]byte(name))
		names--
	}
	b.services = services.Commit()
	b.version++
	clear(b.rules.fresh)
	return &View{version: b.version, checksum: b.store.root, services: b.services, count: b.count, members: members, refused: b.rules.list()}, changed
}

// known reports whether a name is in the last view, and whether with endpoints.
func (b *viewBuilder) known(name string) (known, offered bool) {
	_, known = b.services.Get([]byte(name))
	_, vanished := b.gone[name]
	return known, known && !vanished
}

// offeredNames is how many names of the last view have endpoints.
func (b *viewBuilder) offeredNames() int { return b.services.Len() - b.vanished.Len() }

// retry touches the workers of which more may be admitted now.
func (b *viewBuilder) retry(now time.Time) (any bool) {
	ids := b.rules.retry(now)
	for _, id := range ids {
		b.touch(id)
	}
	return len(ids) > 0
}

// changes sets what the touched workers offer now against what the last view has
// of them, by service. What is equal stays as it was, so that its service does too.
func (b *viewBuilder) changes(now time.Time) map[string][]change {
	changes := make(map[string][]change)
	note := func(service string, c change) { changes[service] = append(changes[service], c) }
	for id := range b.touched {
		was, is := b.offers[id], b.join(id, now)
		for _, e := range was {
			if _, still := findOffer(is, e.Name); !still {
				note(e.Name, change{worker: id, was: e})
			}
		}
		for i, e := range is {
			at, before := findOffer(was, e.Name)
			switch {
			case !before:
				note(e.Name, change{worker: id, is: e})
			case was[at].equal(e):
				is[i] = was[at]
			default:
				note(e.Name, change{worker: id, was: was[at], is: e})
			}
		}
		if len(is) > 0 {
			b.offers[id] = is
		} else {
			delete(b.offers, id)
		}
	}
	b.touched = idSet{} // to clear a set that was large once costs its size for ever
	return changes
}

func findOffer(offers []*Endpoint, service string) (at int, found bool) {
	return slices.BinarySearchFunc(offers, service, func(e *Endpoint, name string) int { return strings.Compare(e.Name, name) })
}

// join makes the endpoints of a worker, sorted by service: its record and what
// membership knows of it. There are none unless it is alive and has a record.
func (b *viewBuilder) join(id string, now time.Time) []*Endpoint {
	e, m := b.store.visible(id)
	if e == nil {
		b.rules.forget(id)
		return nil
	}
	worker := &Worker{NodeID: m.ID, Epoch: m.Epoch, Datacenter: m.Datacenter, Region: m.Region}
	services := b.rules.admit(m, e, e.services(), b, now)
	offers := make([]*Endpoint, len(services))
	for i, s := range services {
		if m.Leaving {
			s.State = Draining
		}
		// Thousands of workers say these alike: each text is kept once.
		s.Name, s.Version = unique.Make(s.Name).Value(), unique.Make(s.Version).Value()
		offers[i] = &Endpoint{s, worker}
		if b.hidden.has(target{e.instance(), s.Name, s.Address}, e.stamp.sequence) {
			unreachable := *worker
			unreachable.Unreachable = true
			offers[i].Worker = &unreachable
		}
	}
	slices.SortFunc(offers, func(a, b *Endpoint) int { return strings.Compare(a.Name, b.Name) })
	return offers
}

func (b *viewBuilder) remember(name string, now time.Time) {
	if _, already := b.gone[name]; !already {
		b.gone[name] = b.vanished.PushBack(vanishedService{name, now})
	}
}

func (b *viewBuilder) recall(name string) {
	if at, ok := b.gone[name]; ok {
		b.vanished.Remove(at)
		delete(b.gone, name)
	}
}

// expiring reports whether a service without endpoints has been known for too
// long.
func (b *viewBuilder) expiring(now time.Time) bool {
	front := b.vanished.Front()
	return front != nil && now.Sub(front.Value.(vanishedService).since) >= knownAge
}
