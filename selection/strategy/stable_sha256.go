package strategy

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// stableSHA256 is the hashing of XIP-79, for those who come from it: n nodes in
// order at the positions i·⌊(2³²−1)/n⌋, and a key belongs to the first position
// after the first four bytes of its SHA-256, or to node 0; an excluded node's keys
// go to the next. Positions depend on the rank: one node more moves up to half of
// the keys, where stable moves 1/(n+1).
type stableSHA256 struct {
	random  *rand.Rand
	keyless prometheus.Counter
	table   atomic.Pointer[[]*Endpoint]
}

func (s *stableSHA256) update(sorted []*Endpoint) {
	slices.SortFunc(sorted, func(a, b *Endpoint) int { return compareNumbered(a.Node, b.Node) })
	s.table.Store(&sorted)
}

func (*stableSHA256) describe() (rule, measure string) {
	return "the first position after the key's hash, then onwards past those that are excluded", "places after the key's position"
}

func (s *stableSHA256) pick(r Request, d *Decision) (*Endpoint, error) {
	list := *s.table.Load()
	if len(list) == 0 {
		return nil, errNoEndpoints
	}
	if r.Key != "" {
		return first(list, sha256Position(r.Key, len(list)), &r, d)
	}
	if d == nil {
		s.keyless.Inc()
	}
	return first(list, s.random.IntN(len(list)), &r, d)
}

// sha256Position is the rank of the first of n positions after the key's hash.
func sha256Position(key string, n int) int {
	var buffer [512]byte // a longer key costs an allocation
	digest := sha256.Sum256(append(buffer[:0], key...))
	hash, spacing := binary.BigEndian.Uint32(digest[:]), math.MaxUint32/uint32(n)
	return min(int(hash/spacing)+1, n) % n
}

// compareNumbered sorts names that are numbers by value, before all others: the
// nodes of XIP-79 are numbers, and a fleet that keeps them keeps its ranks.
func compareNumbered(a, b string) int {
	x, errA := strconv.ParseUint(a, 10, 64)
	y, errB := strconv.ParseUint(b, 10, 64)
	switch {
	case errA == nil && errB == nil:
		return cmp.Or(cmp.Compare(x, y), strings.Compare(a, b))
	case errA == nil:
		return -1
	case errB == nil:
		return 1
	}
	return strings.Compare(a, b)
}
