package ring

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
)

// Bounds on the number of virtual nodes of a [Ring].
const (
	DefaultVirtualNodes = 8  // standard deviation of a member's share: about a third
	MaxVirtualNodes     = 64 // standard deviation of a member's share: about an eighth
)

// Errors returned by [New], [Ring.With] and [NewRendezvous], wrapped together with the
// invalid name.
var (
	ErrEmptyName     = errors.New("ring: the name of a member is empty")
	ErrDuplicateName = errors.New("ring: a member is named twice")
)

// point is one virtual node.
type point struct {
	position uint64
	member   string
}

func comparePoints(a, b point) int {
	if c := cmp.Compare(a.position, b.position); c != 0 {
		return c
	}
	return strings.Compare(a.member, b.member)
}

// Ring is a consistent hash ring (Karger et al., 1997) with virtual nodes.
// It is immutable and safe for concurrent use.
type Ring struct {
	virtualNodes int
	members      []string // sorted
	points       []point  // sorted by position, then by member
}

// New builds a ring on which each member holds virtualNodes positions
// (1 to [MaxVirtualNodes]; 0 means [DefaultVirtualNodes]). The order of members
// does not matter. Without members the ring is empty and valid; an empty or
// repeated name is refused ([ErrEmptyName], [ErrDuplicateName]).
func New(virtualNodes int, members ...string) (*Ring, error) {
	if virtualNodes == 0 {
		virtualNodes = DefaultVirtualNodes
	}
	if virtualNodes < 1 || virtualNodes > MaxVirtualNodes {
		return nil, fmt.Errorf("ring: virtual nodes %d: allowed are 1 to %d, or 0 for the default of %d",
			virtualNodes, MaxVirtualNodes, DefaultVirtualNodes)
	}
	empty := &Ring{virtualNodes: virtualNodes}
	return empty.With(members...)
}

// With returns a ring that also holds members. The new positions are sorted and then
// merged with the existing ones, so adding few members to many costs one pass instead
// of a full sort. A name that is empty, repeated or already present is refused.
func (r *Ring) With(members ...string) (*Ring, error) {
	if len(members) == 0 {
		return r, nil
	}
	added := slices.Clone(members)
	slices.Sort(added)
	for i, name := range added {
		if name == "" {
			return nil, fmt.Errorf("%w: give every member a stable id", ErrEmptyName)
		}
		_, present := slices.BinarySearch(r.members, name)
		if present || (i > 0 && added[i-1] == name) {
			return nil, fmt.Errorf("%w: %q: add each member once", ErrDuplicateName, name)
		}
	}
	points := make([]point, 0, len(added)*r.virtualNodes)
	for _, name := range added {
		for seed := range r.virtualNodes {
			points = append(points, point{Hash(name, uint64(seed)), name})
		}
	}
	slices.SortFunc(points, comparePoints)
	return &Ring{
		virtualNodes: r.virtualNodes,
		members:      merge(r.members, added, strings.Compare),
		points:       merge(r.points, points, comparePoints),
	}, nil
}

// Without returns a ring that does not hold members. Names that are not on the ring
// are ignored.
func (r *Ring) Without(members ...string) *Ring {
	gone := make(map[string]bool, len(members))
	for _, name := range members {
		if _, present := slices.BinarySearch(r.members, name); present {
			gone[name] = true
		}
	}
	if len(gone) == 0 {
		return r
	}
	rest := &Ring{
		virtualNodes: r.virtualNodes,
		members:      make([]string, 0, len(r.members)-len(gone)),
		points:       make([]point, 0, len(r.points)-len(gone)*r.virtualNodes),
	}
	for _, name := range r.members {
		if !gone[name] {
			rest.members = append(rest.members, name)
		}
	}
	for _, p := range r.points {
		if !gone[p.member] {
			rest.points = append(rest.points, p)
		}
	}
	return rest
}

// merge joins two sorted slices into a new sorted one.
func merge[T any](a, b []T, compare func(T, T) int) []T {
	if len(a) == 0 {
		return b
	}
	out := make([]T, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if compare(a[0], b[0]) <= 0 {
			out, a = append(out, a[0]), a[1:]
		} else {
			out, b = append(out, b[0]), b[1:]
		}
	}
	out = append(out, a...)
	return append(out, b...)
}

// Lookup returns the member that key belongs to, and false on an empty ring.
// It takes O(log n) and does not allocate.
func (r *Ring) Lookup(key string) (string, bool) {
	if len(r.points) == 0 {
		return "", false
	}
	return r.points[r.first(Hash(key, 0))].member, true
}

// LookupN returns the first n distinct members clockwise from key, or every member if
// there are fewer. The first is the member that [Ring.Lookup] returns.
func (r *Ring) LookupN(key string, n int) []string {
	n = min(n, len(r.members))
	if n <= 0 {
		return nil
	}
	out := make([]string, 0, n)
	// Scanning a short list is cheaper than building a map.
	const scanLimit = 16
	var seen map[string]bool
	if n > scanLimit {
		seen = make(map[string]bool, n)
	}
	for member := range r.Walk(Hash(key, 0)) {
		if seen != nil {
			if seen[member] {
				continue
			}
			seen[member] = true
		} else if slices.Contains(out, member) {
			continue
		}
		out = append(out, member)
		if len(out) == n {
			break
		}
	}
	return out
}

// Walk yields the member of every virtual node once, clockwise from the first virtual
// node at or after position, wrapping at the end. Each member is yielded once per
// virtual node.
func (r *Ring) Walk(position uint64) iter.Seq[string] {
	return func(yield func(string) bool) {
		at := r.first(position)
		for range r.points {
			if !yield(r.points[at].member) {
				return
			}
			if at++; at == len(r.points) {
				at = 0
			}
		}
	}
}

// first returns the index of the first point at or after position, wrapping to 0.
func (r *Ring) first(position uint64) int {
	at, _ := slices.BinarySearchFunc(r.points, position, func(p point, position uint64) int {
		return cmp.Compare(p.position, position)
	})
	if at == len(r.points) {
		return 0
	}
	return at
}

// Members returns the names of the members, sorted; the slice is the caller's.
func (r *Ring) Members() []string { return slices.Clone(r.members) }

// Len returns the number of members.
func (r *Ring) Len() int { return len(r.members) }

// VirtualNodes returns the number of positions that each member holds.
func (r *Ring) VirtualNodes() int { return r.virtualNodes }
