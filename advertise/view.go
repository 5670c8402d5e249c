package advertise

import (
	"container/list"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"
	"unique"

	iradix "github.com/hashicorp/go-immutable-radix/v2"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/membership"
)

// View lists all services and endpoints at one moment. It is immutable: it can be kept and
// shared between goroutines, and must not be changed. Finding a service or an endpoint
// takes no lock and allocates nothing.
type View struct {
	version  uint64
	checksum uint64
	services *iradix.Tree[*Endpoints] // known services; Endpoints are empty if all are gone
	count    int
	members  *membership.Snapshot
	refused  []Refusal
	relays   *Relays
	settled  bool
	full     bool
}

// Checksum is equal on all members that agree on the live workers and their records. It does not
// cover what relays state.
func (v *View) Checksum() uint64 { return v.checksum }

// Members returns the snapshot that the records were joined with, so that relays and
// endpoints of the same moment can be read together. It is nil until the first snapshot
// has arrived.
func (v *View) Members() *membership.Snapshot { return v.members }

// Settled reports whether the view is complete: the records were compared with those of
// another member, or there is no other member. Before that, the records of a missing
// service may not have arrived yet. When the first worker appears, views are not settled
// until records have been compared again.
func (v *View) Settled() bool { return v.settled }

// Services yields, sorted, the services that have an endpoint, or had one in the views of this
// node within the last 24 hours. At most 4,096 names without endpoints are kept.
func (v *View) Services() iter.Seq[string] {
	return func(yield func(string) bool) {
		if v.services != nil {
			v.services.Root().Walk(func(_ []byte, e *Endpoints) bool { return !yield(e.service) })
		}
	}
}

// serviceCount returns the number of known services.
func (v *View) serviceCount() int {
	if v.services == nil {
		return 0
	}
	return v.services.Len()
}

// Endpoints returns the endpoints of a service, never nil. They are empty for a service
// whose workers are all gone, which Services still yields, and for an unknown service.
func (v *View) Endpoints(service string) *Endpoints {
	if e, known := v.find(service); known {
		return e
	}
	return noEndpoints
}

func (v *View) find(service string) (*Endpoints, bool) {
	if v.services == nil || len(service) > affinity.MaxServiceName {
		return nil, false
	}
	var key [affinity.MaxServiceName]byte // on the stack
	return v.services.Get(key[:copy(key[:], service)])
}

// EndpointCount returns the number of endpoints of all services.
func (v *View) EndpointCount() int { return v.count }

// Endpoint returns the endpoint of one worker for a service, in O(log endpoints).
func (v *View) Endpoint(service, worker string) (*Endpoint, bool) {
	e := v.Endpoints(service).Of(worker)
	return e, e != nil
}

// Refused returns the offers that this node's [Rules] refuse, sorted by worker, at most
// 100, and one for the reason services if there is any. It is empty in a healthy fleet. Do not
// change the slice.
func (v *View) Refused() []Refusal { return v.refused }

const (
	knownAge    = 24 * time.Hour // how long a service without endpoints stays known
	maxVanished = 4096           // how many such names are remembered
)

// viewBuilder joins the store with the live members, one worker at a time: the cost of a
// change is proportional to the services that it touches, not to the cluster. Data of a
// published view is never changed; a changed service gets new Endpoints.
type viewBuilder struct {
	store       *store
	rules       *admission               // which offers become endpoints
	unreachable unreachableSet           // endpoints that this node cannot connect to
	services    *iradix.Tree[*Endpoints] // as in the last view
	offers      map[string][]*Endpoint   // endpoints in services by worker, sorted by name
	relays      *Relays                  // as in the last view
	touched     idSet                    // workers whose offer may have changed since the last view
	vanished    *list.List               // of vanishedService, oldest first
	gone        map[string]*list.Element // elements of vanished by name
	version     uint64
	count       int
}

type idSet map[string]struct{}

type vanishedService struct {
	name  string
	since time.Time
}

func newViewBuilder(s *store, a *admission) *viewBuilder {
	return &viewBuilder{
		store: s, rules: a, services: iradix.New[*Endpoints](), offers: map[string][]*Endpoint{}, touched: idSet{},
		vanished: list.New(), gone: map[string]*list.Element{}, relays: noRelays,
	}
}

// touch marks a worker whose offer may have changed.
func (b *viewBuilder) touch(id string) { b.touched[id] = struct{}{} }

// build returns the next view. It joins only the touched workers again, and replaces only the
// services whose endpoints changed. At the limit on names, those without endpoints give way first,
// the oldest first.
func (b *viewBuilder) build(members *membership.Snapshot, now time.Time) *View {
	services, names := b.services.Txn(), b.services.Len()
	b.relays = b.relays.with(b.statements())
	for name, changes := range b.changes(now) {
		before, known := services.Get([]byte(name))
		if !known {
			before = newEndpoints(name)
		}
		after := before.with(changes)
		if _, replaced := services.Insert([]byte(name), after); !replaced {
			names++
		}
		b.count += after.count - before.count
		if after.count == 0 {
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
	return &View{version: b.version, checksum: b.store.root ^ b.store.attached.root, services: b.services, count: b.count, members: members, refused: b.rules.list(), relays: b.relays, full: b.rules.full > 0}
}

// known reports whether a name is in the last view, and whether it has endpoints there.
func (b *viewBuilder) known(name string) (known, offered bool) {
	_, known = b.services.Get([]byte(name))
	_, vanished := b.gone[name]
	return known, known && !vanished
}

// offeredNames returns the number of names with endpoints in the last view.
func (b *viewBuilder) offeredNames() int { return b.services.Len() - b.vanished.Len() }

// retry touches the workers that may have more services admitted now.
func (b *viewBuilder) retry(now time.Time) (any bool) {
	ids := b.rules.retry(now)
	for _, id := range ids {
		b.touch(id)
	}
	return len(ids) > 0
}

// changes compares the offers of the touched workers with those in the last view and
// returns the differences by service. Equal endpoints are kept, so that their service does
// not change. The differences are collected by service, because a service is replaced once, however
// many of its workers have changed. The workers come in the order of their ids: where names are at
// their limit the first one is admitted, which must be the same on every member.
func (b *viewBuilder) changes(now time.Time) map[string][]change {
	changes := make(map[string][]change)
	note := func(service string, c change) { changes[service] = append(changes[service], c) }
	for _, id := range slices.Sorted(maps.Keys(b.touched)) {
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
	b.touched = idSet{} // a new map: clearing a map always costs its largest size so far
	return changes
}

func findOffer(offers []*Endpoint, service string) (at int, found bool) {
	return slices.BinarySearchFunc(offers, service, func(e *Endpoint, name string) int { return strings.Compare(e.Name, name) })
}

// join returns the endpoints of a worker, sorted by service, from its record and its
// member. There are none unless the worker is alive and has a record.
func (b *viewBuilder) join(id string, now time.Time) []*Endpoint {
	e, m := b.store.visible(id)
	if e == nil || e.record.Relay {
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
		// Thousands of workers have the same names and versions: keep each text once.
		s.Name, s.Version = unique.Make(s.Name).Value(), unique.Make(s.Version).Value()
		offers[i] = &Endpoint{s, worker}
		if b.unreachable.has(target{e.instance(), s.Name, s.Address}, e.stamp.sequence) {
			unreachable := *worker
			unreachable.Unreachable = true
			offers[i].Worker = &unreachable
		}
	}
	slices.SortFunc(offers, func(a, b *Endpoint) int { return strings.Compare(a.Name, b.Name) })
	return offers
}

// statements returns what the touched relays state that differs from the last view, nil for
// those that state nothing any more.
func (b *viewBuilder) statements() map[string]*RelayStatement {
	var changed map[string]*RelayStatement
	for id := range b.touched {
		var is *RelayStatement
		if e, _ := b.store.visible(id); e != nil {
			is = e.statement()
		}
		if is.equal(b.relays.Of(id)) {
			continue
		}
		if changed == nil {
			changed = map[string]*RelayStatement{}
		}
		changed[id] = is
	}
	return changed
}

// remember keeps the name of a service that has lost its last endpoint, and recall forgets that it
// has lost it. A name that comes and goes keeps the time of its last loss, so the list stays in
// order.
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
