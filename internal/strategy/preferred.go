package strategy

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
)

// manual picks the first preferred endpoint in the range, and never another.
type manual struct {
	preferred []string
	none      error // returned if the range has no preferred endpoint
	table     atomic.Pointer[[]*Endpoint]
}

func newManual(preferred []string) *manual {
	return &manual{preferred: preferred, none: fmt.Errorf(
		"selection: %w: the range has none of the nodes that strategy manual may use (%s): check their names, or wait for them",
		ErrNoEndpoints, strings.Join(preferred, ", "))}
}

func (m *manual) update(sorted []*Endpoint) {
	list := inOrderOf(m.preferred, sorted)
	m.table.Store(&list)
}

func (*manual) describe() (rule, measure string) {
	return "the first preferred endpoint that is in the range and not excluded; no other is ever used", "place in the preferred list"
}

func (m *manual) pick(r Request, d *Decision) (*Endpoint, error) {
	list := *m.table.Load()
	if len(list) == 0 {
		return nil, m.none
	}
	return first(list, 0, &r, d)
}

// inOrderOf returns the preferred endpoints, in the order of preference.
func inOrderOf(preferred []string, endpoints []*Endpoint) []*Endpoint {
	list := only(endpoints, preferred)
	slices.SortFunc(list, func(a, b *Endpoint) int {
		return slices.Index(preferred, a.Node) - slices.Index(preferred, b.Node)
	})
	return list
}

// ordered picks the first preferred endpoint in the range, then the first of the others
// by node. (XIP-79 falls back in the iteration order of a Go map, which is random.)
type ordered struct {
	preferred []string
	table     atomic.Pointer[[]*Endpoint]
}

func (o *ordered) update(sorted []*Endpoint) {
	list := inOrderOf(o.preferred, sorted)
	for _, e := range sorted {
		if !slices.Contains(o.preferred, e.Node) {
			list = append(list, e)
		}
	}
	o.table.Store(&list)
}

func (*ordered) describe() (rule, measure string) {
	return "the first that is not excluded: the preferred in their order, then the others by node", "place in that order"
}

func (o *ordered) pick(r Request, d *Decision) (*Endpoint, error) {
	return first(*o.table.Load(), 0, &r, d)
}
