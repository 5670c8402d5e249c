package strategy

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
)

// manual picks the first preferred endpoint there is, and never another.
type manual struct {
	preferred []string
	none      error // when the range has none of them
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
	return "the first preferred endpoint that is there and not excluded; no other is ever used", "place in the preferred list"
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
