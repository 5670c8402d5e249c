package strategy

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/ring"
)

// stable is weighted rendezvous hashing with the order of [ring.Rendezvous]: an endpoint
// that joins or leaves moves only its own keys. Loads are bounded (Mirrokni, Thorup,
// Zadimoghaddam, 2016): an endpoint that has as many requests in flight as its bound
// allows is passed over, and the key goes to the next endpoint in its order. The loop is
// repeated here because ring.Rendezvous cannot apply exclusions and bounds without an
// allocation.
type stable struct {
	bound    float64 // 0: no bound
	random   *rand.Rand
	keyless  prometheus.Counter
	passedOn prometheus.Counter
	table    atomic.Pointer[[]*Endpoint]
}

func (s *stable) update(sorted []*Endpoint) { s.table.Store(&sorted) }

func (*stable) describe() (rule, measure string) {
	return "the highest score for the key among the endpoints that are not excluded", "rendezvous score, -weight/ln(hash of key and node)"
}

func (s *stable) pick(r Request, d *Decision) (*Endpoint, error) {
	list := *s.table.Load()
	if len(list) == 0 {
		return nil, errNoEndpoints
	}
	seed := ring.Hash(r.Key, 0)
	if r.Key == "" {
		seed = s.random.Uint64()
		if d == nil {
			s.keyless.Inc()
		}
	}
	first := highest(list, seed, &r, loadLimit{}, d)
	if first == nil {
		d.rank()
		return nil, errAllExcluded
	}
	winner := first
	// Below alwaysWithin the sum over all endpoints is not needed. At low load this is
	// nearly every pick.
	if s.bound > 0 && first.load() >= alwaysWithin {
		limit := newLoadLimit(list, s.bound, &r)
		if !limit.allows(first) {
			// With concurrent picks every endpoint may be at its bound; then the
			// first endpoint is used anyway.
			if next := highest(list, seed, &r, limit, nil); next != nil {
				winner = next
			}
		}
		if winner != first {
			if d == nil {
				s.passedOn.Inc()
			}
			d.passOn(list, first, limit)
		}
	}
	d.rank()
	return winner, nil
}

// highest returns the endpoint with the highest score among those that the request does
// not exclude and the limit allows, nil if there is none.
func highest(list []*Endpoint, seed uint64, r *Request, limit loadLimit, d *Decision) *Endpoint {
	var best *Endpoint
	var highest float64
	var highestHash uint64
	for _, e := range list {
		hash := ring.Hash(e.Node, seed)
		unit := max(float64(hash>>11), 0.5) / (1 << 53) // in (0,1)
		// Because -ln(h) >= 1-h, this bound rules out most losers without a
		// logarithm. The margin covers rounding.
		if d == nil && best != nil && e.Weight/(1-unit)*(1+1e-9) < highest {
			continue
		}
		score := e.Weight / -math.Log(unit)
		excluded := r.excludes(e)
		d.consider(e, score, noteOf(excluded))
		if excluded || best != nil && (score < highest || score == highest && hash <= highestHash) {
			continue
		}
		if limit.allows(e) {
			best, highest, highestHash = e, score, hash
		}
	}
	return best
}

// alwaysWithin is how many requests in flight every bound allows. With 2, the key of a
// client that sends sequential requests does not move because the previous request is
// still counted, and neither does a key that shares its endpoint with another by chance.
const alwaysWithin = 2

// loadLimit limits the requests in flight of each endpoint for one pick: bound times the
// endpoint's share of all requests in flight, including the new one, rounded up.
type loadLimit struct {
	perWeight float64 // 0: no limit
}

// newLoadLimit divides all requests in flight, including those at excluded endpoints,
// among the endpoints that are not excluded. The sum of the limits exceeds that number, so
// at least one endpoint is below its limit.
func newLoadLimit(list []*Endpoint, bound float64, r *Request) loadLimit {
	inFlight, weights := 0, 0.0
	for _, e := range list {
		inFlight += e.load()
		if !r.excludes(e) {
			weights += e.Weight
		}
	}
	if weights == 0 {
		return loadLimit{}
	}
	return loadLimit{perWeight: bound * float64(inFlight+1) / weights}
}

// of returns the limit of an endpoint. The margin prevents rounding errors from adding one.
func (l loadLimit) of(e *Endpoint) int {
	return max(int(math.Ceil(l.perWeight*e.Weight*(1-1e-12))), alwaysWithin)
}

func (l loadLimit) allows(e *Endpoint) bool { return l.perWeight == 0 || e.load() < l.of(e) }

// passOn records why the first endpoint of a key's order was passed over. The candidates
// of the decision must be in the order of list, not ranked yet.
func (d *Decision) passOn(list []*Endpoint, first *Endpoint, limit loadLimit) {
	if d == nil {
		return
	}
	d.Rule = fmt.Sprintf("%s has the highest score for the key but as many requests in flight as its bound allows, %d: passed on to the next in the key's order that is below its bound", first.Node, limit.of(first))
	for i, e := range list {
		if c := &d.Candidates[i]; c.Note == noteUsable && !limit.allows(e) {
			c.Note = fmt.Sprintf("passed over: %d in flight, the bound is %d", e.load(), limit.of(e))
		}
	}
}

// stableSHA256 is the hashing of XIP-79, for users who migrate from it. n sorted nodes have
// the positions i·⌊(2³²−1)/n⌋, and a key belongs to the first position after the first
// four bytes of its SHA-256, or to node 0; the keys of an excluded node go to the next
// node. Positions depend on the rank: one more node moves up to half of the keys, while
// stable moves 1/(n+1).
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
	return "the first position after the key's hash whose node is not excluded", "places after the key's position"
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

// sha256Position returns the rank of the first of n positions after the key's hash.
func sha256Position(key string, n int) int {
	var buffer [512]byte // longer keys cost an allocation
	digest := sha256.Sum256(append(buffer[:0], key...))
	hash, spacing := binary.BigEndian.Uint32(digest[:]), math.MaxUint32/uint32(n)
	return min(int(hash/spacing)+1, n) % n
}

// compareNumbered sorts names that are numbers by value, before all others. Nodes of
// XIP-79 have numbers, so a fleet that keeps these names keeps its ranks.
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
