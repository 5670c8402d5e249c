package strategy

import (
	"cmp"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ringway/ringway/ring"
	"github.com/ringway/ringway/selection"
)

// slots is the virtual-node ring with power-of-K choices. From each of K random positions
// it takes the first fresh endpoint on the ring; the one with the lowest load wins. Ties
// are broken at random: in a range without load, where all are equal, a fixed rule would
// send every relay to the same endpoint.
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

// warnInterval is the least time between two warnings of one strategy: during a drain
// every pick finds stale endpoints. The metrics count all of them.
const warnInterval = 10 * time.Second

// Bounds of vnodes, how many positions an endpoint has on the ring of slots.
const (
	DefaultVirtualNodes = 8  // standard deviation of an endpoint's share: about a third
	MaxVirtualNodes     = 64 // standard deviation of an endpoint's share: about an eighth
)

// slotRing is the immutable consistent hash ring (Karger et al., 1997): the positions of the endpoints of the highest version,
// sorted by position, then by node.
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
		return "the first fresh endpoint of the version in use after a random position on the ring", "nothing: samples=1 reads no load"
	}
	return "the lowest load plus jitter of the endpoints sampled from random positions on the ring, of the version in use only; ties are broken at random", "load plus jitter"
}

func (s *slots) pick(r Request, d *Decision) (*Endpoint, error) {
	t := s.table.Load()
	if len(t.positions) == 0 {
		return nil, errNoEndpoints
	}
	// Draw all positions before the first scan, so that the number of random values read
	// does not depend on the scans.
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

// leastLoaded returns the endpoint with the lowest load plus jitter, and whether a tie was
// broken at random. With Samples of 1 it reads no load.
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

// slotScan walks the ring for one pick. All samples share its budget.
type slotScan struct {
	ring     *slotRing
	request  *Request
	decision *Decision
	observe  func(*Endpoint)
	oldest   selection.Instant // endpoints last seen before are stale

	budget    int  // how many more stale endpoints may be passed over
	exhausted bool // a walk ended because the budget was used up
	depth     int  // positions checked
	wraps     int
}

// next returns the first fresh endpoint at or after the pivot, wrapping at the end of the
// ring, or nil. Excluded endpoints are passed over without using the budget.
func (w *slotScan) next(pivot uint64) *Endpoint {
	owners := w.ring.owners
	at, _ := slices.BinarySearch(w.ring.positions, pivot)
	for range owners {
		if at == len(owners) {
			at = 0
			w.wraps++
		}
		if w.budget == 0 {
			w.exhausted = true
			return nil
		}
		e := owners[at]
		at++
		w.depth++
		switch {
		case w.request.excludes(e):
			w.decision.consider(e, 0, noteExcluded)
		case e.stale(w.oldest):
			w.budget--
			w.decision.consider(e, 0, noteStale)
			if w.decision == nil {
				w.observe(e)
			}
		default:
			return e
		}
	}
	return nil
}

// count adds the scan to the metrics.
func (s *slots) count(w *slotScan, sampled, dedupes int, tied bool) {
	m, stale := s.metrics, s.spec.MaxScan-w.budget
	m.scanDepth.Observe(float64(w.depth))
	m.wraps.Add(float64(w.wraps))
	m.stale.Add(float64(stale))
	if s.spec.Samples > 1 {
		m.samplesEffective.Observe(float64(sampled))
		m.dedupes.Add(float64(dedupes))
		if tied {
			m.ties.Inc()
		}
	}
	if w.exhausted {
		m.budgetExhausted.Inc()
		s.warn(w.request.Now, w.ring.version, stale)
	}
}

// warn logs that the budget was used up, at most once per warnInterval.
func (s *slots) warn(now selection.Instant, version string, stale int) {
	last := s.lastWarn.Load()
	if time.Duration(int64(now)-last) < warnInterval || !s.lastWarn.CompareAndSwap(last, int64(now)) {
		return
	}
	s.logger.Warn("a pick stopped at the limit of stale endpoints: raise maxscan if this persists, or find out why they are not seen",
		"service", s.service, "version", version, "stale", stale, "maxscan", s.spec.MaxScan)
}

// CompareVersions orders versions by their numbers, from left to right: 1.10 after 1.9,
// 2024-05-10 after 2024-05-9. A leading v and everything after a plus sign are ignored; a
// pre-release (1.0-rc1) comes before its release. Any string is a valid version.
func CompareVersions(a, b string) int {
	a, _, _ = strings.Cut(strings.TrimPrefix(a, "v"), "+")
	b, _, _ = strings.Cut(strings.TrimPrefix(b, "v"), "+")
	for {
		if a != "" && b != "" && isDigit(a[0]) && isDigit(b[0]) {
			var x, y string
			x, a = cutNumber(a)
			y, b = cutNumber(b)
			if c := cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(x, y)); c != 0 {
				return c
			}
			continue
		}
		if c := cmp.Compare(rank(a), rank(b)); c != 0 || a == "" {
			return c
		}
		a, b = a[1:], b[1:]
	}
}

// rank orders the rest after a common prefix: a pre-release, then the end, then anything
// else by its first byte.
func rank(rest string) int {
	switch {
	case rest == "":
		return 1
	case rest[0] == '-':
		return 0
	}
	return 2 + int(rest[0])
}

// cutNumber cuts the digits off the front, without leading zeros.
func cutNumber(s string) (digits, rest string) {
	end := 0
	for end < len(s) && isDigit(s[end]) {
		end++
	}
	return strings.TrimLeft(s[:end], "0"), s[end:]
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
