package advertise

import (
	"iter"
	"math/bits"
	"slices"
	"strings"

	"github.com/ringway/ringway/ring"
)

// Endpoint is one live worker's offer of one service. Endpoints of a view are shared: do
// not change them.
type Endpoint struct {
	// Service is the offer. Its state is also draining if the worker has announced that it
	// leaves.
	Service
	// Worker is the worker that offers the service, never nil in a view. To save memory,
	// the endpoints of one worker share it, except unreachable ones.
	*Worker
}

// Worker is one life of a worker, as membership and this node know it.
type Worker struct {
	NodeID     string `json:"node_id"`
	Epoch      uint64 `json:"epoch"` // Unix milliseconds
	Datacenter string `json:"datacenter,omitempty"`
	Region     string `json:"region,omitempty"`
	// Unreachable is true if this node, and perhaps only this node, cannot connect to the
	// endpoint's address: send no requests there, but include it in plans. See [Catalogue.Observe].
	Unreachable bool `json:"unreachable,omitempty"`
}

func (e *Endpoint) equal(o *Endpoint) bool {
	return *e.Worker == *o.Worker && e.Service.equal(o.Service)
}

// Endpoints are the endpoints of one service at one moment, in ring order: that of
// [ring.Order] of the node ids, keyed by the service. Draining endpoints are included.
// Endpoints are immutable, and a service that did not change keeps the same *Endpoints in
// successive views: compare pointers to detect a change.
//
// [ring.Order]: https://pkg.go.dev/github.com/ringway/ringway/ring#Order
type Endpoints struct {
	service string
	seed    uint64
	count   int
	// The ring is divided into 2^cuts equal arcs, each with its endpoints in order.
	// Hashes are spread evenly, so all arcs hold about the same number of endpoints. The
	// number of arcs is about the number of endpoints per arc, so a change, which copies
	// one arc and the list of arcs, costs in proportion to the square root of the number
	// of endpoints.
	arcs [][]*Endpoint
	cuts int
}

// noEndpoints are the Endpoints of every unknown service.
var noEndpoints = &Endpoints{}

func newEndpoints(service string) *Endpoints {
	return &Endpoints{service: service, seed: ring.Hash(service, 0), arcs: make([][]*Endpoint, 1)}
}

// All yields the endpoints in ring order.
func (e *Endpoints) All() iter.Seq[*Endpoint] {
	return func(yield func(*Endpoint) bool) {
		for _, arc := range e.arcs {
			for _, endpoint := range arc {
				if !yield(endpoint) {
					return
				}
			}
		}
	}
}

// Of returns the endpoint of one worker, nil if it has none, in O(log n).
func (e *Endpoints) Of(worker string) *Endpoint {
	if e.count == 0 {
		return nil
	}
	hash := ring.Hash(worker, e.seed)
	arc := e.arcs[e.arc(hash)]
	if at, found := e.search(arc, hash, worker); found {
		return arc[at]
	}
	return nil
}

// search returns the position of a worker in its arc, by binary search.
func (e *Endpoints) search(arc []*Endpoint, hash uint64, worker string) (at int, found bool) {
	low, high := 0, len(arc)
	for low < high {
		middle := (low + high) / 2
		id := arc[middle].NodeID
		other := ring.Hash(id, e.seed)
		if other < hash || other == hash && strings.Compare(id, worker) < 0 {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low, low < len(arc) && arc[low].NodeID == worker
}

// change is a change of one worker's endpoint: was is nil if the endpoint is new, is if it
// was removed.
type change struct {
	worker  string
	was, is *Endpoint
}

// with returns the endpoints after the changes, which must contain at most one change per
// worker. Its cost is proportional to the changes and the size of an arc. An arc that changes is
// built anew, because readers of earlier views still use the old one.
func (e *Endpoints) with(changes []change) *Endpoints {
	next := *e
	for _, c := range changes {
		if c.was == nil {
			next.count++
		}
		if c.is == nil {
			next.count--
		}
	}
	next.cut()
	for _, c := range changes {
		hash := ring.Hash(c.worker, e.seed)
		arc := &next.arcs[next.arc(hash)]
		at, found := e.search(*arc, hash, c.worker)
		rest := (*arc)[at:]
		if found {
			rest = rest[1:]
		}
		if c.is == nil {
			*arc = slices.Concat((*arc)[:at], rest)
		} else {
			*arc = slices.Concat((*arc)[:at], []*Endpoint{c.is}, rest)
		}
	}
	return &next
}

// arc returns the index of the arc that a hash belongs to.
func (e *Endpoints) arc(hash uint64) uint64 { return hash >> (64 - e.cuts) }

// cut makes the list of arcs writable. The ring is divided anew only if there are about
// four times too many or too few arcs, which is rare. With this margin a service whose
// size goes up and down by a few is not divided again at each change.
func (e *Endpoints) cut() {
	cuts := bits.Len(uint(e.count)) / 2
	if cuts-e.cuts < 2 && e.cuts-cuts < 2 {
		e.arcs = slices.Clone(e.arcs)
		return
	}
	whole := slices.Concat(e.arcs...)
	e.arcs, e.cuts = make([][]*Endpoint, 1<<cuts), cuts
	for len(whole) > 0 {
		arc := e.arc(ring.Hash(whole[0].NodeID, e.seed))
		end := slices.IndexFunc(whole, func(o *Endpoint) bool { return e.arc(ring.Hash(o.NodeID, e.seed)) != arc })
		if end < 0 {
			end = len(whole)
		}
		e.arcs[arc], whole = slices.Clone(whole[:end]), whole[end:]
	}
}
