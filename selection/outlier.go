package selection

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ringway/ringway/internal/outlier"
)

// limits are what an endpoint may have while the others of its tier are healthy.
func (b *core) limits() outlier.Limits {
	return outlier.Limits{InARow: b.cfg.ConsecutiveFailures, Share: b.cfg.ErrorRateThreshold}
}

// evictIfFailing evicts an endpoint that has just failed if it fails more than the others. A
// fault of the whole range shows in all tiers, so another tier counts too, if it has endpoints
// to spare.
func (b *core) evictIfFailing(e *entry, r outlier.Record, now Instant) {
	if phase(e.state.phase.Load()) != active || !b.limits().Exceeded(r) {
		return
	}
	c, evictable := b.table.Load().evictable(e)
	if !evictable {
		return
	}
	if cause, reason := b.limits().Verdict(r, b.others(e, c, now.tick())); cause != "" {
		b.evict(e, now, EvictionCause(cause), reason)
	}
}

// record returns what failures are judged by.
func (s *state) record(now tick) outlier.Record {
	failures, requests := s.decayedCounts(now)
	return outlier.Record{
		Count:  outlier.Count{Failures: float64(failures), Requests: float64(requests)},
		InARow: int(s.consecutive.Load()),
		Age:    time.Duration(now.since(tick(s.countsTick.Load()))) << tickShift,
	}
}

// others returns the figures of the other endpoints of the tier of e, without those that are
// evicted. As many that look broken are left out as may be evicted in addition to e. While
// another tier can take the traffic that is half of the tier: all may be evicted then, but if
// most fail, the tier as a whole must fail more than another. It is a pass over the range, for
// the failures of a suspect only.
func (b *core) others(e *entry, c tierCount, now tick) outlier.Others {
	t, tier := b.table.Load(), e.state.tier.Load()
	o := outlier.Others{Elsewhere: float64(tier.otherShare()), Together: float64(tier.share()), Spare: maxEvicted(c.drawable)}
	if o.Elsewhere < outlier.Nowhere {
		o.Spare = c.drawable / 2
	}
	o.Spare -= c.evicted + 1
	for i := range t.entries {
		s, counts := t.entries[i].state, t.entries[i].Weight > 0 || t.entries[i].isApart()
		if s != e.state && counts && s.tier.Load() == tier && phase(s.phase.Load()) == active {
			o.Add(s.record(now), b.limits())
		}
	}
	return o
}

// maxEvicted is how many of the n endpoints of a tier may be evicted or half-open at the
// same time: a third, rounded down. That is none of one or two endpoints, one of three
// to five. For failures, all endpoints of a tier may be evicted while another tier is
// within this limit.
func maxEvicted(n int) int { return n / 3 }

func (b *core) evict(e *entry, now Instant, cause EvictionCause, reason string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if phase(e.state.phase.Load()) != active {
		return
	}
	t := b.table.Load()
	// A ticket may outlive its endpoint's place in the range.
	i := slices.IndexFunc(t.entries, func(o entry) bool { return o.guarded == e.guarded })
	if i < 0 {
		return
	}
	if _, evictable := t.evictable(&t.entries[i]); !evictable {
		return
	}
	b.evictEntry(e.guarded, now, cause, reason)
	b.table.Store(t.again())
}

// evictEntry starts an eviction, longer than the last one if that was not long ago. b.mu is
// held; the caller publishes a new table.
func (b *core) evictEntry(g *guarded, now Instant, cause EvictionCause, reason string) {
	var well time.Duration
	if phase(g.state.phase.Load()) == active {
		well = time.Duration(now - g.readmittedAt)
	}
	g.reason = reason
	g.until = now + Instant(g.backoff.Next(well, b.cfg.MaxEviction, unit(b.random(nil))))
	g.state.phase.Store(uint32(evicted))
	if b.cfg.OnEvict != nil {
		b.cfg.OnEvict(cause)
	}
}

// evictProbed evicts a half-open endpoint again because its one request failed.
func (b *core) evictProbed(e *entry, now Instant) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if phase(e.state.phase.Load()) != halfOpen {
		return
	}
	b.evictEntry(e.guarded, now, forFailingAgain, "failed again when tried after eviction")
	b.table.Store(b.table.Load().again())
}

// readmitProbed readmits a half-open endpoint because its one request succeeded.
func (b *core) readmitProbed(e *entry, now Instant) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if phase(e.state.phase.Load()) != halfOpen {
		return
	}
	b.readmit(e.guarded, now)
	b.table.Store(b.table.Load().again())
}

// readmit makes an endpoint active again, with cleared failure counts and the ramp of a
// new endpoint. b.mu is held; the caller publishes a new table.
func (b *core) readmit(g *guarded, now Instant) {
	g.state.restart()
	g.state.rampUntil.Store(int64(now) + int64(b.cfg.SlowStart))
	g.state.phase.Store(uint32(active))
	g.readmittedAt = now
}

// readmitExcess enforces the limit on evictions after the range has shrunk: the
// endpoints whose eviction ends first are readmitted. b.mu is held.
func (b *core) readmitExcess(entries []entry, now Instant) {
	for tally(entries).excess() {
		b.readmitFirst(entries, func(e *entry) bool { return e.Weight > 0 }, now)
	}
	for c := tallyApart(entries); c.evicted > maxEvicted(c.drawable); c.evicted-- {
		b.readmitFirst(entries, (*entry).isApart, now)
	}
}

// readmitFirst readmits, of the endpoints that count, the one whose eviction ends first. b.mu is held.
func (b *core) readmitFirst(entries []entry, counts func(*entry) bool, now Instant) {
	var first *guarded
	for i := range entries {
		g := entries[i].guarded
		if counts(&entries[i]) && phase(g.state.phase.Load()) != active && (first == nil || g.until < first.until) {
			first = g
		}
	}
	b.readmit(first, now)
}

// EvictionCause is why an endpoint was evicted, as a label for metrics. EvictionCauses
// lists all values.
type EvictionCause string

// The causes.
const (
	// forFailuresInARow: more than ConsecutiveFailures failures in a row.
	forFailuresInARow = EvictionCause(outlier.FailuresInARow)
	// forErrorRate: the failure share surely exceeds that of the others by ErrorRateThreshold.
	forErrorRate = EvictionCause(outlier.ErrorRate)
	// forLatency: the latency estimate is above LatencyFactor times the median.
	forLatency EvictionCause = "latency"
	// forFailingAgain: the request that tried a half-open endpoint failed.
	forFailingAgain EvictionCause = "half_open"
)

// EvictionCauses lists all causes.
func EvictionCauses() []EvictionCause {
	return []EvictionCause{forFailuresInARow, forErrorRate, forLatency, forFailingAgain}
}

// endEviction makes an evicted endpoint half-open when its time is over, and reports whether it did.
// core.mu is held.
func (e *entry) endEviction(now Instant) bool {
	if phase(e.state.phase.Load()) != evicted || now < e.guarded.until {
		return false
	}
	e.state.probing.Store(0)
	e.state.phase.Store(uint32(halfOpen))
	return true
}

const (
	// An endpoint is evicted for latency only if its estimate was too high for slowFor, in
	// more answers than slowSamples, and by a margin of slowZ/√n: if the standard
	// deviation of n answers equals their mean, the mean is wrong by a share of 4/√n in
	// one of 30,000 cases. (The same z as for failures.)
	//
	// In the simulation (go run ./sims run latency) workers that were three times as slow,
	// but still useful, were evicted up to 104 times in a run when 3 s were enough, and
	// once or twice when 10 s were enough without the margin. The 99th percentile never
	// differed by more than 1 %, because the score immediately keeps requests away from a
	// slow endpoint. So this eviction serves endpoints that get requests anyway, because
	// of a strategy or a weight.
	slowSamples = 20
	slowZ       = 4
	slowFor     = Instant(10 * time.Second)
	// slowRecovers: an estimate that has fallen by a quarter shows that the endpoint
	// recovers. The estimate is a mean over several seconds and falls as slowly.
	slowRecovers = 0.75
)

// slowPeriod is a time in which an endpoint's latency is too high. The zero value is none.
type slowPeriod struct {
	since Instant
	ended uint64  // requests that had ended at the start of the period
	worst float32 // highest estimate in the period, ns
}

// evictSlow evicts endpoints whose latency is above LatencyFactor times the median of
// their tier, and reports whether it evicted any. b.mu is held; the caller publishes a new
// table. The comparison is within the tier, because a busy tier is slower as a whole
// without a fault of any endpoint. At most a third of a tier is evicted, whatever the
// state of the other tiers: a farther tier would be slow as well.
//
// The comparison uses the estimate relaxed towards the median, as in the score, but
// without the lower bound by a silence that still lasts. So the estimate stays above the
// limit only while answers confirm it, and a slow endpoint that gets few requests is judged
// by its recent answers. An endpoint returns as from any eviction, after one good answer; if
// it is still slow, it is evicted again, for twice as long.
//
// The check runs here and not at every answer: it is not urgent, because the score
// immediately keeps requests away.
func (b *core) evictSlow(t *table, now Instant) (changed bool) {
	if b.cfg.LatencyFactor == 0 {
		return false
	}
	for i := range t.entries {
		if e := &t.entries[i]; e.Weight <= 0 {
			e.guarded.slow = slowPeriod{}
		}
	}
	for _, c := range t.counts {
		changed = b.evictSlowOf(t, c, now) || changed
	}
	return changed
}

// evictSlowOf is evictSlow for one tier.
func (b *core) evictSlowOf(t *table, tier tierCount, now Instant) (changed bool) {
	median, of, health := b.tierMedian(t, tier.tier)
	limit := float32(b.cfg.LatencyFactor) * median
	panicking := float64(health.share()) > b.cfg.ErrorRateThreshold
	for i := range t.entries {
		e := &t.entries[i]
		if e.Tier != tier.tier && b.tiers != nil {
			continue
		}
		g, s := e.guarded, e.state
		latency, at := unpack(s.latency.Load())
		latency = relaxed(latency, median, now.tick().since(at))
		if e.Weight <= 0 || phase(s.phase.Load()) != active || latency <= limit {
			g.slow = slowPeriod{}
			continue
		}
		ended := s.done.Load()
		if g.slow.worst == 0 || latency < slowRecovers*g.slow.worst { // the period begins, or the endpoint recovers or is silent
			g.slow = slowPeriod{since: now, ended: ended}
		}
		g.slow.worst = max(g.slow.worst, latency)
		n := ended - g.slow.ended
		lasting := now-g.slow.since >= slowFor && n > slowSamples
		surely := float64(latency) > float64(limit)*(1+slowZ/math.Sqrt(float64(n)))
		if !lasting || !surely || panicking || tier.evicted >= maxEvicted(tier.drawable) {
			continue
		}
		b.evictEntry(g, now, forLatency, fmt.Sprintf("latency %v for %v, the median of the %s is %v",
			round(latency), time.Duration(now-g.slow.since).Round(time.Second), of, round(median)))
		g.slow = slowPeriod{}
		tier.evicted++
		changed = true
	}
	return changed
}

// tierMedian returns the median latency of a tier or, if there is only one, of the range;
// which of the two it is, for the reason; and the corresponding health record. With
// several tiers, most endpoints of a tier may be evicted; only its active endpoints count.
// b.mu is held.
func (b *core) tierMedian(t *table, tier uint8) (median float32, of string, health *tierHealth) {
	median, _ = unpackPair(b.medians.Load())
	if b.tiers == nil {
		return median, "range", b.whole
	}
	latencies := b.scratch[:0]
	for i := range t.entries {
		e := &t.entries[i]
		if e.Tier == tier && phase(e.state.phase.Load()) == active && e.state.evidence().samples() >= enoughForMedian {
			latency, _ := unpack(e.state.latency.Load())
			latencies = append(latencies, latency)
		}
	}
	b.scratch = latencies
	return medianOf(latencies, median), "tier", b.tiers[tier]
}

// round rounds a latency to about three digits, for texts.
func round(ns float32) time.Duration {
	d := time.Duration(ns)
	for unit := time.Second; unit > 1; unit /= 10 {
		if d >= unit {
			return d.Round(unit / 100)
		}
	}
	return d
}
