package strategy

import (
	"slices"
	"sync/atomic"
)

// ordered picks the first preferred endpoint there is, then the first of the
// others by node. (The source falls back in the order of a Go map, which is none.)
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
