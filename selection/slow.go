package selection

import (
	"fmt"
	"math"
	"time"
)

const (
	// An estimate is held against an endpoint when it was too high for slowFor, in
	// more answers than slowSamples, and is so surely: the mean of n answers whose
	// deviation is as large as their mean is off by 4/√n of itself in one of 30,000
	// cases. (The same z as for failures.)
	//
	// In the simulation (go run ./sims run latency) workers that are three times as slow, and
	// worth using, were evicted up to 104 times in a run when 3 s were enough, and
	// once or twice after 10 s without the last condition. Nowhere was the 99th
	// percentile more than 1 % off, with any of them: the score keeps requests away
	// from a slow endpoint at once. So this is for endpoints that get requests all
	// the same, because a strategy or a weight sends them there.
	slowSamples = 20
	slowZ       = 4
	slowFor     = Instant(10 * time.Second)
)

// spell is a time in which an endpoint's latency is too high. The zero value is none.
type spell struct {
	since Instant
	ended uint64  // requests that had ended at its beginning
	worst float32 // highest estimate in it, ns
}

// evictSlow puts endpoints out whose latency is above LatencyFactor times the
// median of their tier, and reports whether it did. b.mu is held; the caller
// publishes. A busy tier beside an idle one is slower as a whole, and no endpoint
// of it to blame. At most a third of a tier is put out, whatever the others are
// like: to be far away is slow, too.
//
// What counts is the measured estimate as the score sees it: relaxed towards the
// median, without the floor of a silence. So it stays above the limit only while
// answers confirm it, and an endpoint that is hardly used, because it was slow, is
// judged by what it does now. An endpoint comes back as from any eviction, by one
// good answer; while it stays slow it is put out again, for twice as long.
//
// Checked here and not with every answer: it needs no more haste than the median,
// and the score keeps requests away at once.
func (b *Balancer) evictSlow(t *table, now Instant) (changed bool) {
	if b.cfg.LatencyFactor == 0 {
		return false
	}
	for i := range t.entries {
		if e := &t.entries[i]; e.Weight <= 0 {
			e.member.slow = spell{}
		}
	}
	counts := tally(t.entries)
	for _, c := range counts {
		changed = b.evictSlowOf(t, c, now) || changed
	}
	return changed
}

// evictSlowOf does it for one tier.
func (b *Balancer) evictSlowOf(t *table, tier tierCount, now Instant) (changed bool) {
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
		latency = median + (latency-median)*decay(float32(now.tick().since(at))*perLatencyTau)
		if e.Weight <= 0 || phase(s.phase.Load()) != active || latency <= limit {
			m.slow = spell{}
			continue
		}
		ended := s.done.Load()
		if m.slow.worst == 0 || latency < m.slow.worst/2 { // it begins, or the endpoint recovers or is silent
			m.slow = spell{since: now, ended: ended}
		}
		m.slow.worst = max(m.slow.worst, latency)
		n := ended - m.slow.ended
		lasting := now-m.slow.since >= slowFor && n > slowSamples
		surely := float64(latency) > float64(limit)*(1+slowZ/math.Sqrt(float64(n)))
		if !lasting || !surely || panicking || tier.out >= maxOut(tier.drawable) {
			continue
		}
		b.putOut(m, now, ForLatency, fmt.Sprintf("latency %v for %v, the median of the %s is %v",
			round(latency), time.Duration(now-m.slow.since).Round(time.Second), of, round(median)))
		m.slow = spell{}
		tier.out++
		changed = true
	}
	return changed
}

// tierMedian returns the median latency of a tier, what it is the median of, and
// the record of that. In one of several tiers most endpoints may be out; what they
// answered before is no measure of the rest. b.mu is held.
func (b *Balancer) tierMedian(t *table, tier uint8) (median float32, of string, health *tierHealth) {
	median, _ = unpackPair(b.medians.Load())
	if b.tiers == nil {
		return median, "range", b.whole
	}
	latencies := b.scratch[:0]
	for i := range t.entries {
		e := &t.entries[i]
		if e.Tier == tier && phase(e.state.phase.Load()) == active && e.state.samples.Load() >= enoughForMedian {
			latency, _ := unpack(e.state.latency.Load())
			latencies = append(latencies, latency)
		}
	}
	b.scratch = latencies
	return middle(latencies, median), "tier", b.tiers[tier]
}

// round gives a latency for people, three digits or so.
func round(ns float32) time.Duration {
	d := time.Duration(ns)
	for unit := time.Second; unit > 1; unit /= 10 {
		if d >= unit {
			return d.Round(unit / 100)
		}
	}
	return d
}
