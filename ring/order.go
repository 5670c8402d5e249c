package ring

import (
	"cmp"
	"slices"
	"strings"
)

// hashed is an id by its place in the caller's slice: without a pointer the sort
// moves 16 bytes and no write barrier runs.
type hashed struct {
	hash  uint64
	index int
}

// Order returns ids sorted by Hash(id, Hash(key, 0)), ties by id. The result is a
// new slice that depends on the set of ids and the key only, not on their order.
// Different keys give unrelated orders, so that the neighbours of an id under one
// service are not its neighbours under the next.
func Order(key string, ids []string) []string {
	seed := Hash(key, 0)
	keyed := make([]hashed, len(ids))
	for i, id := range ids {
		keyed[i] = hashed{Hash(id, seed), i}
	}
	slices.SortFunc(keyed, func(a, b hashed) int {
		if c := cmp.Compare(a.hash, b.hash); c != 0 {
			return c
		}
		return strings.Compare(ids[a.index], ids[b.index])
	})
	out := make([]string, len(ids))
	for i, k := range keyed {
		out[i] = ids[k.index]
	}
	return out
}

// IsOrdered reports whether ids is strictly in the order of [Order] for key, and
// so also free of repeated ids. It takes one pass and does not allocate.
func IsOrdered(key string, ids []string) bool {
	seed := Hash(key, 0)
	var previous uint64
	for i, id := range ids {
		hash := Hash(id, seed)
		if i > 0 && (hash < previous || (hash == previous && ids[i-1] >= id)) {
			return false
		}
		previous = hash
	}
	return true
}
