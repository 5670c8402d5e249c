package ring

import (
	"cmp"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// hashed refers to an id by its index in the caller's slice: without a pointer the
// sort moves 16 bytes per element and needs no write barrier.
type hashed struct {
	hash  uint64
	index int
}

// Order returns ids sorted by Hash(id, Hash(key, 0)), ties by id. The result is a
// new slice that depends only on the key and the set of ids, not on the order of ids.
// Different keys give unrelated orders, so an id has different neighbours under each
// service.
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

// IsOrdered reports whether ids is strictly in the order of [Order] for key, which
// implies that no id is repeated. It takes one pass and does not allocate.
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

// Hash returns the XXH64 of key under seed. It does not allocate.
//
// XXH64 is fast and spreads keys evenly, but is not cryptographic: a client that
// chooses the keys can choose their hashes.
func Hash(key string, seed uint64) uint64 {
	if seed == 0 {
		return xxhash.Sum64String(key)
	}
	var digest xxhash.Digest
	digest.ResetWithSeed(seed)
	_, _ = digest.WriteString(key) // documented never to fail
	return digest.Sum64()
}
