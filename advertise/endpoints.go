package advertise

import (
	"fmt"
	"iter"
	"math/bits"
	"slices"
	"strings"

	"github.com/ringway/ringway/ring"
)

// Endpoint is one live worker's offer of one service. Those of a view are shared:
// do not change them.
type Endpoint struct {
	// Service is the offer itself. Its state is draining as well when the worker
	// has said that it leaves.
	Service
	// Worker is who offers it, never nil in a view. There are many endpoints, so
	// those of one worker share it, except one that is unreachable.
	*Worker
}

// Worker is one life of a worker, as membership and this node know it.
type Worker struct {
	NodeID     string `json:"node_id"`
	Epoch      uint64 `json:"epoch"` // Unix milliseconds
	Datacenter string `json:"datacenter,omitempty"`
	Region     string `json:"region,omitempty"`
	// Unreachable says that this node, and perhaps this node only, cannot connect
	// to the endpoint's address: send nothing there, but count it in a plan. See
	// [Expirer].
	Unreachable bool `json:"unreachable,omitempty"`
}

// String shows every field.
func (e Endpoint) String() string { return fmt.Sprintf("%+v %+v", e.Service, e.Worker) }

func (e *Endpoint) equal(o *Endpoint) bool {
	return *e.Worker == *o.Worker && e.Service.equal(o.Service)
}

// Endpoints are those of one service at one moment, in ring order: that of
// [ring.Order] keyed by the service over node ids, draining ones included. They
// are immutable, and a service that did not change keeps the same *Endpoints from
// view to view: compare pointers to see whether anything is new.
//
// [ring.Order]: https://pkg.go.dev/github.com/ringway/ringway/ring#Order
type Endpoints struct {
	service string
	seed    uint64
	count   int
	// The ring is cut into 2^cuts equal arcs, each with its endpoints in order. As
	// hashes are spread evenly, arcs hold about as many each. There are about as
	// many arcs as endpoints in one, so that a change, which copies one arc and the
	// list of arcs, costs in proportion to the square root of all.
	arcs [][]*Endpoint
	cuts int
}

// noEndpoints are those of every service that nobody offers.
var noEndpoints = &Endpoints{}

func newEndpoints(service string) *Endpoints {
	return &Endpoints{service: service, seed: ring.Hash(service, 0), arcs: make([][]*Endpoint, 1)}
}

// Len is the number of endpoints.
func (e *Endpoints) Len() int { return e.count }

// String shows every endpoint, in ring order.
func (e *Endpoints) String() string { return fmt.Sprint(slices.Collect(e.All())) }

// All goes through the endpoints in ring order.
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

// Of finds the endpoint of one worker, nil if it has none, in O(log n).
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

// search finds the place of a worker in its arc.
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

// change is what becomes of one worker's endpoint: was is nil where it is new, is
// where it is gone.
type change struct {
	worker  string
	was, is *Endpoint
}

// with returns the endpoints after the changes, at most one for each worker. It
// costs in proportion to the changes and the size of an arc.
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

// arc is where a hash belongs.
func (e *Endpoints) arc(hash uint64) uint64 { return hash >> (64 - e.cuts) }

// cut makes arcs that may be written to. They are cut anew only when there are
// some four times too many or too few, so that it is rare.
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
