package selection

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
)

// Balancer picks endpoints of one range. All methods are safe for concurrent
// use.
type Balancer struct {
	// Read by every pick, written rarely.
	table     atomic.Pointer[table]
	medians   atomic.Uint64 // float32 M, float32 R
	rand      func() uint64 // nil is math/rand/v2
	redraws   int
	alpha     float32
	slowStart float32 // ns
	cfg       Config

	_ [128]byte // keep what picks write away from what they only read

	winner winner

	mu      sync.Mutex            // guards what follows and publishing tables
	members map[string]*member    // by endpoint ID
	tiers   map[uint8]*tierHealth // where there are several, else nil
	whole   *tierHealth           // of the range, where it is one tier
	breadth breadth
	scratch []float32 // for medians
}

// member is the part of an endpoint's record that only the mutex holder uses.
type member struct {
	state     *state
	until     Instant // end of the eviction
	readmit   Instant // last return from eviction
	evictions int     // k: consecutive evictions
	slow      spell   // of too high latency
	counted   uint64  // picks that the rate of requests has counted
	ended     uint64  // requests that its tier has counted
	reason    string  // of the last eviction
}

// NewBalancer returns a balancer with an empty range.
func NewBalancer(cfg Config) (*Balancer, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	b := &Balancer{
		cfg:       cfg,
		rand:      cfg.Rand,
		redraws:   cfg.Redraws,
		alpha:     float32(cfg.Alpha),
		slowStart: float32(cfg.SlowStart),
		members:   make(map[string]*member),
		whole:     newTierHealth(),
	}
	b.medians.Store(packPair(float32(cfg.InitialLatency), 0))
	b.table.Store(newTable(nil, nil, b.breadth.shape(&b.cfg, 0)))
	return b, nil
}

// Range is what a balancer picks from.
type Range struct {
	// Endpoints are in the order of the relay's range in the ring.
	Endpoints []Endpoint
	// MinEffective is how many of them, from the first on, get traffic however
	// little there is: so many that with those of the other relays no worker is
	// left out, ⌈workers/relays⌉. At least 3 are used anyway. 0 means that
	// nobody knows; then all are.
	MinEffective int
}

// Update is UpdateRange of endpoints that all get traffic.
func (b *Balancer) Update(endpoints []Endpoint, now Instant) error {
	return b.UpdateRange(Range{Endpoints: endpoints}, now)
}

// UpdateRange replaces the range. Endpoints known by ID keep their statistics; new
// ones start at the median latency and ramp up. Endpoints that are gone are
// forgotten; tickets picked from them may still be given back. On an error
// (empty or repeated ID, weight negative, infinite or NaN, MinEffective
// negative; all reported at once) the old
// range stays. The slice is copied.
func (b *Balancer) UpdateRange(r Range, now Instant) error {
	endpoints := r.Endpoints
	if err := errors.Join(validateEndpoints(endpoints), r.validateFloor()); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	members := make(map[string]*member, len(endpoints))
	entries := make([]entry, len(endpoints))
	for i, e := range endpoints {
		m := b.members[e.ID]
		if m == nil {
			m = &member{state: new(state)}
			m.state.rampUntil.Store(int64(now) + int64(b.cfg.SlowStart))
		}
		members[e.ID] = m
		entries[i] = entry{Endpoint: e, state: m.state, member: m}
	}
	weighOut(entries)
	b.assignTiers(entries)
	b.members = members
	b.breadth.floor = r.MinEffective
	b.readmitExcess(entries, now)
	b.compareTiers(entries, now)
	b.table.Store(newTable(entries, index(entries), b.breadth.shape(&b.cfg, len(entries))))
	return nil
}

func (r *Range) validateFloor() error {
	if r.MinEffective < 0 {
		return fmt.Errorf("selection: MinEffective is %d; allowed is 0 (all endpoints) or more", r.MinEffective)
	}
	return nil
}

func validateEndpoints(endpoints []Endpoint) error {
	var errs []error
	seen := make(map[string]bool, len(endpoints))
	for i, e := range endpoints {
		if e.ID == "" {
			errs = append(errs, fmt.Errorf("selection: endpoint %d has no ID; give each a stable one", i))
		} else if seen[e.ID] {
			errs = append(errs, fmt.Errorf("selection: endpoint ID %q is given twice; IDs must be unique within a range", e.ID))
		}
		seen[e.ID] = true
		// The bound keeps sums of weights finite.
		if !(e.Weight >= 0 && e.Weight <= math.MaxFloat32) {
			errs = append(errs, fmt.Errorf("selection: endpoint %q has weight %v; allowed is a finite number >= 0", e.ID, e.Weight))
		}
	}
	return errors.Join(errs...)
}

// Refresh recomputes the medians M and R, evicts endpoints that have been slow for
// too long, lets evicted ones whose time is over take one request at a time, and
// fits the effective range to the rate of requests. Call it every 250 ms from one place; it
// costs one pass over the range and is never on the path of a request.
func (b *Balancer) Refresh(now Instant) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.table.Load()
	changed := false
	for i := range t.entries {
		e := &t.entries[i]
		e.state.freshen(now.tick())
		if phase(e.state.phase.Load()) == evicted && now >= e.member.until {
			e.state.probing.Store(0)
			e.state.phase.Store(uint32(halfOpen))
			changed = true
		}
	}
	b.refreshMedians(t)
	b.compareTiers(t.entries, now)
	if b.evictSlow(t, now) {
		changed = true
	}
	b.breadth.follow(b.flow(t), now, b.cfg.EndpointRate)
	shape := b.breadth.shape(&b.cfg, len(t.entries))
	if changed || shape != t.shape {
		b.table.Store(newTable(t.entries, t.byID, shape))
	}
}

// enoughForMedian is how many samples an endpoint has that medians are taken of.
const enoughForMedian = 3

// refreshMedians takes endpoints with enough samples; without any the old
// values stay. b.mu is held.
func (b *Balancer) refreshMedians(t *table) {
	median, queue := unpackPair(b.medians.Load())
	latencies := b.scratch[:0]
	for i := range t.entries {
		if s := t.entries[i].state; s.samples.Load() >= enoughForMedian {
			latency, _ := unpack(s.latency.Load())
			latencies = append(latencies, latency)
		}
	}
	median = middle(latencies, median)
	queues := latencies[:0]
	for i := range t.entries {
		if s := t.entries[i].state; s.samples.Load() >= enoughForMedian && s.reported.Load() == ownReport {
			_, average := unpackPair(s.report.Load())
			queues = append(queues, average)
		}
	}
	queue = middle(queues, queue)
	b.scratch = queues
	b.medians.Store(packPair(median, queue))
}

// middle returns the lower median: of two endpoints the better one is the
// measure of what the range can do. It sorts values.
func middle(values []float32, none float32) float32 {
	if len(values) == 0 {
		return none
	}
	slices.Sort(values)
	return values[(len(values)-1)/2]
}
