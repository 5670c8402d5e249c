package strategy

import (
	"cmp"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ringway/ringway/ring"
	"github.com/ringway/ringway/selection"
)

// slots is the virtual-node ring with power-of-K choices. K random places of the
// ring lead to K endpoints, the first fresh one from each place on; the one with
// the lowest load wins, chance deciding between equals: on a cold range, where all
// are equal, any fixed rule would send every relay to the same endpoint.
type slots struct {
	spec    Spec
	service string
	random  *rand.Rand
	stale   func(*Endpoint)
	logger  *slog.Logger
	metrics *Metrics

	table    atomic.Pointer[slotRing]
	lastWarn atomic.Int64 // Instant of the last warning
}

// warnInterval is the least time between two warnings of one strategy: a drain
// makes every pick meet stale endpoints, and the counter counts them all.
const warnInterval = 10 * time.Second

// slotRing is the immutable ring: the places of the endpoints of the highest
// version, sorted by position, then by node.
type slotRing struct {
	version   string
	positions []uint64
	owners    []*Endpoint // of positions
}

func newSlots(cfg Config, random *rand.Rand) *slots {
	s := &slots{
		spec: cfg.Spec, service: cfg.Service, random: random, stale: cfg.Stale,
		logger: cfg.Logger, metrics: cfg.Metrics,
	}
	if s.stale == nil {
		s.stale = func(*Endpoint) {}
	}
	s.lastWarn.Store(math.MinInt64 / 2)
	return s
}

func (s *slots) update(sorted []*Endpoint) {
	t := &slotRing{}
	for i, e := range sorted {
		if i == 0 || CompareVersions(e.Version, t.version) > 0 {
			t.version = e.Version
		}
	}
	type place struct {
		position uint64
		owner    int // in sorted, whose order decides between equal positions
	}
	places := make([]place, 0, len(sorted)*s.spec.VirtualNodes)
	for i, e := range sorted {
		if CompareVersions(e.Version, t.version) != 0 {
			continue
		}
		for seed := range s.spec.VirtualNodes {
			places = append(places, place{ring.Hash(e.Node, uint64(seed)), i})
		}
	}
	slices.SortFunc(places, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.position, b.position), a.owner-b.owner)
	})
	t.positions, t.owners = make([]uint64, len(places)), make([]*Endpoint, len(places))
	for i, p := range places {
		t.positions[i], t.owners[i] = p.position, sorted[p.owner]
	}
	s.table.Store(t)
}

func (s *slots) describe() (rule, measure string) {
	if s.spec.Samples == 1 {
		return "the first fresh endpoint of the highest version after a random place of the ring", "nothing: samples=1 reads no load"
	}
	return "the lowest load plus jitter of the endpoints sampled from random places of the ring, highest version only, chance deciding between equals", "load plus jitter"
}

func (s *slots) pick(r Request, d *Decision) (*Endpoint, error) {
	t := s.table.Load()
	if len(t.positions) == 0 {
		return nil, errNoEndpoints
	}
	// The places are drawn before anything is looked at, so that what a scan meets
	// has no influence on them.
	var pivots [maxSamples]uint64
	for i := range s.spec.Samples {
		pivots[i] = s.random.Uint64()
	}
	w := slotScan{ring: t, request: &r, decision: d, oldest: r.Now - selection.Instant(s.spec.Fresh), budget: s.spec.MaxScan, observe: s.stale}
	var sampled [maxSamples]*Endpoint
	n, dedupes := 0, 0
	for _, pivot := range pivots[:s.spec.Samples] {
		e := w.next(pivot)
		switch {
		case e == nil:
		case slices.Contains(sampled[:n], e):
			dedupes++
			d.consider(e, 0, noteAlready)
		default:
			sampled[n] = e
			n++
		}
	}
	winner, tied := s.leastLoaded(sampled[:n], d)
	if d == nil {
		s.count(&w, n, dedupes, tied)
	}
	switch {
	case winner != nil:
		return winner, nil
	case w.exhausted:
		return nil, errScanBudget
	case w.budget < s.spec.MaxScan:
		return nil, errAllStale
	}
	return nil, errAllExcluded
}

// leastLoaded returns the endpoint with the lowest load plus jitter, and whether
// chance had to decide. It reads no load when only one sample was asked for.
func (s *slots) leastLoaded(sampled []*Endpoint, d *Decision) (winner *Endpoint, tied bool) {
	if s.spec.Samples == 1 {
		if len(sampled) == 0 {
			return nil, false
		}
		d.consider(sampled[0], 0, noteUsable)
		return sampled[0], false
	}
	var lowest [maxSamples]*Endpoint
	ties, least := 0, math.MaxInt
	for _, e := range sampled {
		load := e.load()
		if s.spec.SlotJitter > 0 {
			load += s.random.IntN(s.spec.SlotJitter + 1)
		}
		d.consider(e, float64(load), noteUsable)
		if load < least {
			ties, least = 0, load
		}
		if load == least {
			lowest[ties] = e
			ties++
		}
	}
	switch ties {
	case 0:
		return nil, false
	case 1:
		return lowest[0], false
	}
	return lowest[s.random.IntN(ties)], true
}
