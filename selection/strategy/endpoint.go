package strategy

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/ringway/ringway/selection"
)

// Endpoint is what a strategy chooses among.
type Endpoint struct {
	// ID is the identity of this instance, unique; a request excludes by it.
	ID string
	// Node is the stable name, unique; it survives a restart. Hashes, orders and
	// the preferred list go by it.
	Node string
	// Address is host:port. closest and farthest measure the time to connect to it;
	// without one an endpoint is never measured and so never picked by them.
	Address string
	// Version tells generations apart: slots uses the highest one only. Compared
	// by its numbers: 1.10 is higher than 1.9, 1.0-rc1 lower than 1.0, and no
	// version is the lowest.
	Version string
	// Weight is the share of the keys that stable gives it, relative to the
	// others: finite and at least 0. At 0 it gets keys only when all others are
	// excluded. The other strategies do not read it.
	Weight float64
	// Signals tell slots and stable what changes between two updates. Without them
	// nothing is known: for slots, what is not known to be alive counts as stale; for
	// stable, the endpoint has nothing in flight.
	Signals Signals
	// Value is the caller's.
	Value any
}

// Signals are read during a pick, from any goroutine; they must not block.
type Signals interface {
	// Load is how many slots are taken; unknown counts as none. For stable it is how
	// many requests this picker has in flight there: the bound compares it with the sum
	// over all endpoints.
	Load() (slots int, known bool)
	// Seen is when the endpoint last showed itself to be alive, by the clock of
	// Request.Now; unknown counts as never. A time in the future is fresh, which
	// is the answer where membership vouches for the endpoint.
	Seen() (at selection.Instant, known bool)
}

// load is 0 where it is not known.
func (e *Endpoint) load() int {
	if e.Signals == nil {
		return 0
	}
	load, known := e.Signals.Load()
	if !known {
		return 0
	}
	return load
}

// stale reports whether the endpoint was not seen since the instant.
func (e *Endpoint) stale(since selection.Instant) bool {
	if e.Signals == nil {
		return true
	}
	at, known := e.Signals.Seen()
	return !known || at < since
}

// validate reports every problem of the endpoints at once.
func validate(endpoints []Endpoint) error {
	var errs []error
	ids, nodes := make(map[string]bool, len(endpoints)), make(map[string]bool, len(endpoints))
	unique := func(seen map[string]bool, i int, what, name string) {
		if name == "" {
			errs = append(errs, fmt.Errorf("selection: endpoint %d has no %s: give it one", i, what))
		} else if seen[name] {
			errs = append(errs, fmt.Errorf("selection: %s %q is given twice: list each endpoint once", what, name))
		}
		seen[name] = true
	}
	for i, e := range endpoints {
		unique(ids, i, "ID", e.ID)
		unique(nodes, i, "Node", e.Node)
		if !(e.Weight >= 0 && e.Weight <= math.MaxFloat32) { // negated, so that NaN is refused too
			errs = append(errs, fmt.Errorf("selection: endpoint %q has weight %v; allowed is a finite number >= 0", e.ID, e.Weight))
		}
	}
	return errors.Join(errs...)
}

// byNode returns pointers to the endpoints, sorted by node.
func byNode(endpoints []Endpoint) []*Endpoint {
	list := make([]*Endpoint, len(endpoints))
	for i := range endpoints {
		list[i] = &endpoints[i]
	}
	slices.SortFunc(list, func(a, b *Endpoint) int { return strings.Compare(a.Node, b.Node) })
	return list
}

// only returns those of the list whose node is preferred, in the list's order.
func only(list []*Endpoint, preferred []string) []*Endpoint {
	return slices.DeleteFunc(slices.Clone(list), func(e *Endpoint) bool { return !slices.Contains(preferred, e.Node) })
}
