package selection

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ringway/ringway/internal/outlier"
)

// record holds the figures by which an endpoint that has just failed is judged.
type record struct {
	consecutive        uint32  // failures in a row
	failures, requests float32 // recent; counts that decay over 10 s
	failing            float32 // share of failures in its tier
	otherFailing       float32 // lowest share expected in another tier, 1 for none
}

// evictionReason returns why an endpoint that has just failed should be evicted, as a
// label for metrics and as a text for operators, or two empty strings.
//
// Failures in a row count only while the other endpoints of the tier are healthy: at a
// 10 % background failure rate healthy endpoints have four in a row by chance. The failure
// share must exceed that of the others by more than the threshold with statistical
// certainty, because the plain share of a few dozen requests exceeds 5 % by chance too
// often. So a fault that all endpoints share evicts none (panic), and a third that fails
// is evicted however much that raises the mean.
//
// A fault of the whole range shows in all tiers. So failures in a row also count while
// another tier that has endpoints to spare is healthy, or fails less than a third as much
// as this one. The failure share then needs to exceed only the threshold, and three times
// the share of the other tier if that tier exceeds the threshold too.
func (b *core) evictionReason(r record, o others) (cause EvictionCause, reason string) {
	threshold, other := b.cfg.ErrorRateThreshold, float64(r.otherFailing)
	if b.inARow(r.consecutive) && (o.healthy(threshold) || other < threshold || float64(r.failing) > 3*other) {
		return forFailuresInARow, fmt.Sprintf("%d consecutive failures", r.consecutive)
	}
	share := float64(r.failures) / float64(r.requests)
	if b.surely(r.failures, r.requests) && (o.exceeded(r, threshold) || other <= threshold || share >= 3*other) {
		return forErrorRate, fmt.Sprintf("error rate %.0f%% of %.0f recent requests", 100*share, r.requests)
	}
	return "", ""
}

// suspect reports whether an endpoint with these counts might be evicted if the others of
// its tier are healthy.
func (b *core) suspect(consecutive uint32, failures, requests float32) bool {
	return b.inARow(consecutive) || b.surely(failures, requests)
}

func (b *core) inARow(consecutive uint32) bool {
	return int64(consecutive) > int64(b.cfg.ConsecutiveFailures)
}

// surely reports whether a failure share exceeds the threshold with statistical certainty.
func (b *core) surely(failures, requests float32) bool {
	return requests >= outlier.Enough && outlier.LowerBound(float64(failures), float64(requests), outlier.Sure) > b.cfg.ErrorRateThreshold
}

// others sums up the endpoints of a tier without the one that is judged, and without those
// that are evicted.
type others struct {
	failures, requests float64 // recent; counts that decay over 10 s
	recent, failing    int     // endpoints with recent requests; those whose last request failed
}

// others returns the figures of the other endpoints of the tier of e. It leaves out as many
// endpoints that look broken themselves, by two failures in a row or by their share, as may
// be evicted in addition to e: otherwise the endpoints of a third that fails would excuse
// each other. While another tier can take the traffic that is half of the tier: all may be
// evicted then, but if most fail, the tier as a whole must fail more than another. It is a
// pass over the range, for the failures of a suspect only.
func (b *core) others(e *entry, now tick) (o others) {
	t, tier := b.table.Load(), e.state.tier.Load()
	drawable, out := 0, 0
	for i := range t.entries {
		if s := t.entries[i].state; t.entries[i].Weight > 0 && s.tier.Load() == tier {
			drawable++
			if phase(s.phase.Load()) != active {
				out++
			}
		}
	}
	spare := maxEvicted(drawable)
	if tier.otherShare() < 1 {
		spare = drawable / 2
	}
	spare -= out + 1
	for i := range t.entries {
		s := t.entries[i].state
		if s == e.state || t.entries[i].Weight <= 0 || s.tier.Load() != tier || phase(s.phase.Load()) != active {
			continue
		}
		failures, requests := s.decayedCounts(now)
		consecutive := s.consecutive.Load()
		if spare > 0 && (consecutive > 1 || b.surely(failures, requests)) {
			spare--
			continue
		}
		o.failures += float64(failures)
		o.requests += float64(requests)
		if requests > 0 && now.since(tick(s.countsTick.Load())) < recentAge {
			o.recent++
			if consecutive > 0 {
				o.failing++
			}
		}
	}
	return o
}

// healthy reports whether the others fail less than the threshold. The share of recent
// requests alone would notice too late that all endpoints begin to fail, so the last
// requests count as well. Without any request the others count as healthy.
func (o others) healthy(threshold float64) bool {
	return o.failures < threshold*max(o.requests, 1) && float64(o.failing) < threshold*float64(max(o.recent, 1))
}

// exceeded reports whether the failure share of an endpoint surely exceeds that of the
// others, by more than the threshold. Of others with few requests nothing is sure.
func (o others) exceeded(r record, threshold float64) bool {
	if o.requests < outlier.Enough {
		return false
	}
	return outlier.Excess(
		outlier.Count{Failures: float64(r.failures), Requests: float64(r.requests)},
		outlier.Count{Failures: o.failures, Requests: o.requests},
		outlier.Sure) > threshold
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
	i := slices.IndexFunc(t.entries, func(o entry) bool { return o.member == e.member })
	if i < 0 || t.entries[i].Weight <= 0 || t.full.has(t.entries[i].Tier) {
		return
	}
	b.evictEntry(e.member, now, cause, reason)
	b.table.Store(t.again())
}

// evictEntry starts an eviction, which ends after min(MaxEviction, 2^k s)·U(0.5, 1).
// b.mu is held; the caller publishes a new table.
func (b *core) evictEntry(m *member, now Instant, cause EvictionCause, reason string) {
	// After MaxEviction without an eviction, k starts at 0 again.
	if phase(m.state.phase.Load()) == active && m.evictions > 0 && now-m.readmit > Instant(b.cfg.MaxEviction) {
		m.evictions = 0
	}
	m.evictions++
	m.reason = reason
	m.until = now + Instant(outlier.Eviction(m.evictions, b.cfg.MaxEviction, unit(b.random(nil))))
	m.state.phase.Store(uint32(evicted))
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
	b.evictEntry(e.member, now, forFailingAgain, "failed again when tried after eviction")
	b.table.Store(b.table.Load().again())
}

// readmitProbed readmits a half-open endpoint because its one request succeeded.
func (b *core) readmitProbed(e *entry, now Instant) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if phase(e.state.phase.Load()) != halfOpen {
		return
	}
	b.readmit(e.member, now)
	b.table.Store(b.table.Load().again())
}

// readmit makes an endpoint active again, with cleared failure counts and the ramp of a
// new endpoint. b.mu is held; the caller publishes a new table.
func (b *core) readmit(m *member, now Instant) {
	m.state.restart()
	m.state.rampUntil.Store(int64(now) + int64(b.cfg.SlowStart))
	m.state.phase.Store(uint32(active))
	m.readmit = now
}

// readmitExcess enforces the limit on evictions after the range has shrunk: the
// endpoints whose eviction ends first are readmitted. b.mu is held.
func (b *core) readmitExcess(entries []entry, now Instant) {
	for tally(entries).excess() {
		var first *member
		for i := range entries {
			m := entries[i].member
			if entries[i].Weight > 0 && phase(m.state.phase.Load()) != active &&
				(first == nil || m.until < first.until) {
				first = m
			}
		}
		b.readmit(first, now)
	}
}

// EvictionCause is why an endpoint was evicted, as a label for metrics. EvictionCauses
// lists all values.
type EvictionCause string

// The causes.
const (
	// forFailuresInARow: more than ConsecutiveFailures failures in a row.
	forFailuresInARow EvictionCause = "consecutive_failures"
	// forErrorRate: the failure share is above ErrorRateThreshold.
	forErrorRate EvictionCause = "error_rate"
	// forLatency: the latency estimate is above LatencyFactor times the median.
	forLatency EvictionCause = "latency"
	// forFailingAgain: the request that tried a half-open endpoint failed.
	forFailingAgain EvictionCause = "half_open"
)

// EvictionCauses lists all causes.
func EvictionCauses() []EvictionCause {
	return []EvictionCause{forFailuresInARow, forErrorRate, forLatency, forFailingAgain}
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

// evictionPeriod is a time in which an endpoint's latency is too high. The zero value is none.
type evictionPeriod struct {
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
			e.member.slow = evictionPeriod{}
		}
	}
	counts := tally(t.entries)
	for _, c := range counts {
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
		m, s := e.member, e.state
		latency, at := unpack(s.latency.Load())
		latency = relaxed(latency, median, now.tick().since(at))
		if e.Weight <= 0 || phase(s.phase.Load()) != active || latency <= limit {
			m.slow = evictionPeriod{}
			continue
		}
		ended := s.done.Load()
		if m.slow.worst == 0 || latency < slowRecovers*m.slow.worst { // the period begins, or the endpoint recovers or is silent
			m.slow = evictionPeriod{since: now, ended: ended}
		}
		m.slow.worst = max(m.slow.worst, latency)
		n := ended - m.slow.ended
		lasting := now-m.slow.since >= slowFor && n > slowSamples
		surely := float64(latency) > float64(limit)*(1+slowZ/math.Sqrt(float64(n)))
		if !lasting || !surely || panicking || tier.evicted >= maxEvicted(tier.drawable) {
			continue
		}
		b.evictEntry(m, now, forLatency, fmt.Sprintf("latency %v for %v, the median of the %s is %v",
			round(latency), time.Duration(now-m.slow.since).Round(time.Second), of, round(median)))
		m.slow = evictionPeriod{}
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
