package selection

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ringway/ringway/internal/outlier"
)

// core is a Balancer without the type of its values: so the code of a pick exists once, however
// many types a program uses, and no pick reads a dictionary of types.
type core struct {
	// Read by every pick, written rarely.
	table     atomic.Pointer[table]
	medians   atomic.Uint64 // float32 median latency M, float32 median average report
	headroom  atomic.Uint32 // float32 h; see headroomOf
	overdue   atomic.Int32  // ticks; see view
	slow      atomic.Uint32 // float32 slowFactor; see view
	rand      func() uint64 // nil means math/rand/v2
	redraws   int
	alpha     float32
	slowStart float32 // ns
	cfg       Config

	_ [128]byte // separate the cache lines that picks write from those they only read

	winner runningWinner
	tries  tries

	mu        sync.Mutex            // guards the fields below and publishing tables
	inRange   map[string]*guarded   // by endpoint ID
	departed  map[string]*guarded   // left the range with requests in flight
	tiers     map[uint8]*tierHealth // if the range has several tiers, else nil
	whole     *tierHealth           // of the range, if it has one tier
	apart     *tierHealth           // of the endpoints that are Apart
	effective effectiveRange
	sent      uint64    // requests up to the last Refresh
	usual     float32   // R: the requests in flight at an endpoint, an average over usualMemory
	scratch   []float32 // for medians
}

// guarded is the part of an endpoint's record that is used only with core.mu held.
type guarded struct {
	state        *state
	until        Instant // end of the eviction
	readmittedAt Instant // last return from eviction
	backoff      outlier.Backoff
	slow         slowPeriod // time in which the latency was too high
	counted      uint64     // picks already included in the rate of requests
	ended        uint64     // ended requests already included in the tier's count
	reason       string     // of the last eviction
}

// init prepares a core with an empty range.
func (b *core) init(cfg Config) {
	b.cfg = cfg
	b.rand = cfg.Rand
	b.redraws = cfg.Redraws
	b.alpha = float32(cfg.Alpha)
	b.slowStart = float32(cfg.SlowStart)
	b.inRange, b.departed = make(map[string]*guarded), make(map[string]*guarded)
	b.whole, b.apart = newTierHealth(), newTierHealth()
	b.medians.Store(packPair(float32(cfg.InitialLatency), 0))
	b.overdue.Store(math.MaxInt32)
	b.tries.init()
	b.table.Store(newTable(nil, nil, b.effective.shape(&b.cfg, 0)))
}

func (b *core) update(endpoints []Endpoint[any], minEffective int, now Instant) error {
	if err := errors.Join(validateEndpoints(endpoints), validateFloor(minEffective)); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	inRange := make(map[string]*guarded, len(endpoints))
	entries := make([]entry, len(endpoints))
	maps.DeleteFunc(b.departed, func(_ string, g *guarded) bool { return g.state.outstanding() <= 0 })
	for i, e := range endpoints {
		g := b.inRange[e.ID]
		if g == nil {
			// Requests that an endpoint still has when it comes back count: sessions may last for
			// days, and another limit of them would be too many.
			if g = b.departed[e.ID]; g == nil {
				g = &guarded{state: new(state)}
			}
			delete(b.departed, e.ID)
			g.state.rampUntil.Store(int64(now) + int64(b.cfg.SlowStart))
		}
		inRange[e.ID] = g
		entries[i] = entry{Endpoint: e, state: g.state, guarded: g}
	}
	for id, g := range b.inRange {
		if inRange[id] == nil && g.state.outstanding() > 0 {
			b.departed[id] = g
		}
	}
	setQueueCosts(entries)
	b.assignTiers(entries)
	b.inRange = inRange
	b.effective.floor = minEffective
	b.readmitExcess(entries, now)
	b.compareTiers(entries, now)
	b.table.Store(newTable(entries, index(entries), b.effective.shape(&b.cfg, len(entries))))
	return nil
}

func validateFloor(minEffective int) error {
	if minEffective < 0 {
		return fmt.Errorf("selection: MinEffective is %d; allowed is 0 (all endpoints) or more", minEffective)
	}
	return nil
}

func validateEndpoints(endpoints []Endpoint[any]) error {
	var errs []error
	seen := make(map[string]bool, len(endpoints))
	for i, e := range endpoints {
		if e.ID == "" {
			errs = append(errs, fmt.Errorf("selection: endpoint %d has no ID; give each endpoint a stable ID", i))
		} else if seen[e.ID] {
			errs = append(errs, fmt.Errorf("selection: endpoint ID %q is listed twice; IDs must be unique within a range", e.ID))
		}
		seen[e.ID] = true
		// The bound keeps sums of weights finite.
		if !(e.Weight >= 0 && e.Weight <= math.MaxFloat32) {
			errs = append(errs, fmt.Errorf("selection: endpoint %q has weight %v; allowed is a finite number >= 0", e.ID, e.Weight))
		}
	}
	return errors.Join(errs...)
}

func (b *core) refresh(now Instant) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.table.Load()
	changed := false
	for _, g := range b.departed {
		g.state.freshen(now.tick())
	}
	for i := range t.entries {
		e := &t.entries[i]
		e.state.freshen(now.tick())
		e.state.endLateProbe(now, b.cfg.MaxEviction)
		changed = e.endEviction(now) || changed
	}
	b.refreshMedians(t)
	b.compareTiers(t.entries, now)
	if b.evictSlow(t, now) {
		changed = true
	}
	f := b.flow(t)
	b.sent += f.sent
	b.effective.follow(f, now, b.cfg.EndpointRate)
	b.overdue.Store(b.effective.overdue(len(t.near.drawn)))
	b.slow.Store(math.Float32bits(b.tries.slowFactor()))
	shape := b.effective.shape(&b.cfg, len(t.entries))
	if changed || shape != t.shape {
		b.table.Store(newTable(t.entries, t.byID, shape))
	}
}

func (b *core) sentRequests() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sent
}

// enoughForMedian is how many samples an endpoint needs to count in the medians.
const enoughForMedian = 3

// refreshMedians computes the medians of the endpoints with enough samples; if there
// are none, the old values stay. b.mu is held.
func (b *core) refreshMedians(t *table) {
	median, queue := unpackPair(b.medians.Load())
	latencies := b.scratch[:0]
	for i := range t.entries {
		if s := t.entries[i].state; s.evidence().samples() >= enoughForMedian {
			latency, _ := unpack(s.latency.Load())
			latencies = append(latencies, latency)
		}
	}
	median = medianOf(latencies, median)
	queues := latencies[:0]
	for i := range t.entries {
		if s := t.entries[i].state; s.evidence().samples() >= enoughForMedian && s.reported.Load() == ownReport {
			_, average := unpackPair(s.report.Load())
			queues = append(queues, average)
		}
	}
	queue = medianOf(queues, queue)
	b.scratch = queues
	b.medians.Store(packPair(median, queue))
	if len(queues) == 0 {
		queue = ownQueue(t)
	}
	b.usual += (queue - b.usual) * usualStep
	b.headroom.Store(math.Float32bits(headroomOf(b.usual)))
}

const (
	// usualStep is the weight of one Refresh in the usual queue: with one every 250 ms the
	// average has a time constant of 3 s, so that a burst does not change the headroom.
	usualStep = 1.0 / 12
	// headroomShare and maxHeadroom: h = min(1.5·R, 4). With R alone slow endpoints get too
	// many requests; with 2·R and at most 6 the tail is no shorter, and the median is worse,
	// because fast endpoints get long queues.
	headroomShare = 1.5
	maxHeadroom   = 4
)

// headroomOf returns h of the score, from the usual number of requests in flight at an
// endpoint.
func headroomOf(usual float32) float32 { return min(headroomShare*usual, maxHeadroom) }

// ownQueue returns the mean number of this balancer's requests in flight at the endpoints
// that get traffic, for a range without reports.
func ownQueue(t *table) float32 {
	n, out := 0, float32(0)
	for i := range t.entries {
		if t.routed[i] {
			n++
			out += t.entries[i].state.outstanding()
		}
	}
	return out / float32(max(n, 1))
}

// medianOf returns the lower median, or none if there are no values: with two endpoints
// the better one shows what the range can do. It sorts values.
func medianOf(values []float32, none float32) float32 {
	if len(values) == 0 {
		return none
	}
	slices.Sort(values)
	return values[(len(values)-1)/2]
}

// table is the immutable view of the range that picks read. A new table is published when
// the range changes, when an endpoint is evicted, becomes half-open or is readmitted, and
// when the effective range grows or shrinks.
type table struct {
	near      candidates   // of the nearest tier that gets traffic
	beyond    candidates   // of the tier of near, outside the effective range
	spill     []candidates // of other tiers with traffic or half-open endpoints; usually empty
	otherZone candidates   // active endpoints of other zones, if there are also some of the own; usually empty

	entries []entry // the whole range, in the caller's order
	byID    map[string]*entry
	routed  []bool // by entry: whether it is among the candidates
	shape   shape
	// halfOpen is true if there is a half-open candidate, so that a pick must check
	// phases. It is nearly always false.
	halfOpen bool
	// limited is true if an endpoint has a Limit, so that a pick must check for room.
	limited bool
	// inactive is true if an endpoint is evicted or half-open.
	inactive bool
	// counts show of which tiers no more may be evicted. Without them, every failure in a
	// failing range would take the mutex.
	counts tierCounts
	// apart is the same for the endpoints that are Apart.
	apart tierCount
}

// shape holds the inputs of a table other than the endpoints.
type shape struct {
	effective        int     // effective range: the number of endpoints that get traffic
	overprovisioning float64 // see Config
}

type entry struct {
	Endpoint[any]
	state   *state
	guarded *guarded
}

// newTable builds a table. Tables of one range share the entries and their index.
func newTable(entries []entry, byID map[string]*entry, s shape) *table {
	t := &table{entries: entries, byID: byID, routed: make([]bool, len(entries)), shape: s, counts: tally(entries), apart: tallyApart(entries)}
	t.limited = slices.ContainsFunc(entries, func(e entry) bool { return e.Limit > 0 })
	t.inactive = slices.ContainsFunc(entries, func(e entry) bool { return phase(e.state.phase.Load()) != active })
	t.otherZone = t.activeInOtherZones()
	for _, share := range tierShares(entries, s.overprovisioning) {
		c, beyond := t.candidates(share)
		if len(c.drawn) > 0 {
			switch {
			case c.load == 0:
				// A tier without traffic may have half-open endpoints, which get a small share.
				c.load = float64(len(c.drawn)) / float64(len(entries))
				t.spill = append(t.spill, c)
			case len(t.near.drawn) == 0:
				t.near, t.beyond = c, beyond
			default:
				t.spill = append(t.spill, c)
			}
		}
	}
	return t
}

// activeInOtherZones returns the endpoints of other zones that get traffic, none if all are of other zones.
func (t *table) activeInOtherZones() candidates {
	var found []candidate
	var weights []float64
	ownZone := false
	for i := range t.entries {
		switch e := &t.entries[i]; {
		case e.Weight <= 0:
		case !e.OtherZone:
			ownZone = true
		case phase(e.state.phase.Load()) == active:
			found, weights = append(found, e.candidate()), append(weights, e.Weight)
		}
	}
	if !ownZone || len(found) == 0 {
		return candidates{}
	}
	return newCandidates(tierShare{tier: found[0].entry.Tier, load: 1}, found, weights)
}

// again returns a table of the same range after phases have changed.
func (t *table) again() *table { return newTable(t.entries, t.byID, t.shape) }

// candidates returns the first active endpoints of the tier, in ring order, as many as the
// tier's part of the effective range, and the other active endpoints as beyond. Half-open
// endpoints are added wherever they are: otherwise they would never be tried and would
// count as evicted forever.
func (t *table) candidates(share tierShare) (inside, beyond candidates) {
	size := ceil(share.load * float64(t.shape.effective))
	var in, out []candidate
	var weights, outWeights []float64
	for i := range t.entries {
		e := &t.entries[i]
		if e.Weight <= 0 || e.Tier != share.tier {
			continue
		}
		switch phase(e.state.phase.Load()) {
		case evicted:
			continue
		case halfOpen:
			t.halfOpen = true
		default:
			if size == 0 {
				out, outWeights = append(out, e.candidate()), append(outWeights, e.Weight)
				continue
			}
			size--
		}
		t.routed[i] = true
		in, weights = append(in, e.candidate()), append(weights, e.Weight)
	}
	return newCandidates(share, in, weights), newCandidates(share, out, outWeights)
}

// isApart reports whether the endpoint gets only requests that its caller takes there.
func (e *entry) isApart() bool { return e.Apart && e.Weight <= 0 }

func (e *entry) candidate() candidate { return candidate{e.state, e, e.Limit} }

func index(entries []entry) map[string]*entry {
	byID := make(map[string]*entry, len(entries))
	for i := range entries {
		byID[entries[i].ID] = &entries[i]
	}
	return byID
}

// setQueueCosts sets state.queueCost, what one request in flight adds to the queue: the mean weight
// of the tier divided by the endpoint's weight. So an endpoint of twice the weight counts
// as equally busy with twice as many requests.
func setQueueCosts(entries []entry) {
	var sums [256]float64
	var counts [256]int
	for i := range entries {
		if e := &entries[i]; e.Weight > 0 {
			sums[e.Tier] += e.Weight
			counts[e.Tier]++
		}
	}
	for i := range entries {
		e := &entries[i]
		queueCost := float32(1)
		if e.Weight > 0 {
			queueCost = float32(sums[e.Tier] / float64(counts[e.Tier]) / e.Weight)
		}
		e.state.queueCost.Store(math.Float32bits(queueCost))
	}
}

// runningWinner is the running winner score W, float32 bits. Concurrent picks may lose a step;
// that is harmless, because W is an average of about sixty picks.
type runningWinner struct{ bits atomic.Uint32 }

func (w *runningWinner) load() float32 { return math.Float32frombits(w.bits.Load()) }

// update moves W by 1/16 of the distance to the score of the winner of one pick in four,
// which the random bits choose: all processors share the cache line of W, and with two of
// them a write at every pick takes a fifth of the time of a request. (Bits 1 and 2 are free:
// the draws do not depend on them noticeably.) Steps below 0.1 % of W are skipped, so that
// the line is not written while scores are stable.
func (w *runningWinner) update(old, score float32, random uint64) {
	if old == 0 {
		w.bits.Store(math.Float32bits(score))
		return
	}
	if random&0b110 != 0 {
		return
	}
	if step := (score - old) / 16; step > old/1000 || step < -old/1000 {
		w.bits.Store(math.Float32bits(old + step))
	}
}

// try is what came of the first request that tried an endpoint after its estimate had become bad.
type try int8

const (
	noTry try = iota
	goodTry
	vainTry
)

// tries is the share of good ones among the last tries of endpoints that report no load, float32 bits.
// Only the first try after a good estimate counts, so that endpoints that stay slow do not decide for the
// others. The share shows what made these endpoints slow: after single slow answers of idle ones, as on
// a machine that does something else for a moment, four of five tries are good; after the queues of busy
// ones, half of them or fewer.
type tries struct{ bits atomic.Uint32 }

const (
	// triesWeight is the weight of a new try in the share.
	triesWeight = 1.0 / 16
	// Above goodTries an endpoint is tried as any other, below vainTries as rarely as overdueSlow
	// allows. With more tries in a simulated fleet at 80 % load, p99 doubles.
	goodTries, vainTries = 0.75, 0.6
)

func (t *tries) init() { t.bits.Store(math.Float32bits(0.7)) }

func (t *tries) add(one try) {
	share := math.Float32frombits(t.bits.Load())
	good := float32(0)
	if one == goodTry {
		good = 1
	}
	t.bits.Store(math.Float32bits(share + triesWeight*(good-share))) // one lost to contention is harmless
}

func (t *tries) slowFactor() float32 {
	share := math.Float32frombits(t.bits.Load())
	return 1 + (overdueSlow-1)*min(max((goodTries-share)/(goodTries-vainTries), 0), 1)
}
