package strategy

import (
	"math"
	"math/rand/v2"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/ring"
)

// stable is weighted rendezvous hashing with the order of [ring.Rendezvous]: an
// endpoint more or less moves its own keys only. The loop is here because an
// exclusion must cost no allocation.
type stable struct {
	random  *rand.Rand
	keyless prometheus.Counter
	table   atomic.Pointer[[]*Endpoint]
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
		if !excluded && (best == nil || score > highest || score == highest && hash > highestHash) {
			best, highest, highestHash = e, score, hash
		}
	}
	d.rank()
	if best == nil {
		return nil, errAllExcluded
	}
	return best, nil
}
