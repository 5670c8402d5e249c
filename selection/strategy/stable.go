package strategy

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/ring"
)

// stable is weighted rendezvous hashing with the order of [ring.Rendezvous], an
// endpoint more or less moves its own keys only, and with bounded loads (Mirrokni,
// Thorup, Zadimoghaddam 2016): an endpoint that has its bound in flight is passed
// over, and the key goes to the next of its order. The loop is here because neither
// an exclusion nor the bound may cost an allocation.
type stable struct {
	bound    float64 // 0: none
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
	// Up to alwaysWithin no sum is needed, which is nearly every pick at low load.
	if s.bound > 0 && first.load() >= alwaysWithin {
		limit := newLoadLimit(list, s.bound, &r)
		if !limit.allows(first) {
			// None is left when others pick at the same time; then the bound yields.
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

// highest returns the endpoint with the highest score that the request does not
// exclude and the limit allows, nil if there is none.
func highest(list []*Endpoint, seed uint64, r *Request, limit loadLimit, d *Decision) *Endpoint {
	var best *Endpoint
	var highest float64
	var highestHash uint64
	for _, e := range list {
		hash := ring.Hash(e.Node, seed)
		unit := max(float64(hash>>11), 0.5) / (1 << 53) // in (0,1)
		// -ln(h) >= 1-h: most losers are seen without a logarithm. The margin
		// covers rounding.
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

// alwaysWithin is how many requests in flight are within every bound: one that has
// just ended and is not counted off yet must not move the key of a client that sends
// one after the other, nor must two keys that meet by chance.
const alwaysWithin = 2

// loadLimit is how many requests endpoints may have in flight for one pick: with the
// one that is picked for, the bound times the endpoint's share of all, rounded up.
type loadLimit struct {
	perWeight float64 // 0: any number
}

// newLoadLimit shares out all that is in flight, also at excluded endpoints, among
// those that are not excluded. The shares add up to more than that, so one of them
// has less than its own.
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

// of is how many an endpoint may have. The margin keeps rounding from adding one.
func (l loadLimit) of(e *Endpoint) int {
	return max(int(math.Ceil(l.perWeight*e.Weight*(1-1e-12))), alwaysWithin)
}

func (l loadLimit) allows(e *Endpoint) bool { return l.perWeight == 0 || e.load() < l.of(e) }

// passOn notes in a decision over the whole list, not ranked yet, why the first
// endpoint of a key's order did not get it.
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
