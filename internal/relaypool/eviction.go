package relaypool

import (
	"fmt"
	"slices"
	"time"

	"github.com/ringway/ringway/internal/outlier"
)

// minLife is how long a connection must have been open for its peer to stay a candidate.
// Otherwise a peer that accepts and closes would cause a tight loop.
const minLife = time.Second

// Lost reports that an open connection broke or takes no more requests. Requests in flight
// may continue. A peer without another open connection loses its place.
func (t *table) Lost(id linkID, err error, now time.Time) {
	t.advance(now)
	l := t.links[id]
	if l == nil || !l.open || l.member == nil {
		return
	}
	m := l.member
	t.drain(l)
	if m.connected() {
		return
	}
	why := fmt.Sprintf("connection lost: %v", err)
	if t.now.Sub(l.openedAt) < minLife {
		t.setAside(m.peer, why)
	}
	t.removeMember(m, Lost, why)
	t.rank(byHealth)
}

// setAside evicts a peer that could not be connected to, always for the time of a first
// eviction. Until it accepts a connection it gets no request that could fail. It is in the
// list of peers, so it is alive for others: with a longer time the pool would notice late
// that it accepts connections again.
func (t *table) setAside(p *peer, why string) {
	var first outlier.Backoff
	t.out(p, first.Next(0, t.cfg.MaxEviction, t.unit()), why)
	p.recallAt = t.now.Add(t.between(t.cfg.ReplenishMin, t.cfg.ReplenishMax))
}

// out keeps a peer from being a candidate for some time.
func (t *table) out(p *peer, lasts time.Duration, why string) {
	p.reason = why
	p.evictedUntil = t.now.Add(lasts)
	t.evicted = append(t.evicted, p)
}

func (t *table) endEviction(p *peer) {
	t.evicted = without(t.evicted, p)
	p.evictedUntil = time.Time{}
}

// evictIfBad evicts a member if verdict returns a reason and another member is connected, which
// can take over.
func (t *table) evictIfBad(m *member, verdict func(*member) (Reason, string)) {
	why, detail := verdict(m)
	if why == "" || !slices.ContainsFunc(t.others(m), (*member).connected) {
		return
	}
	t.out(m.peer, m.peer.backoff.Next(t.now.Sub(m.since), t.cfg.MaxEviction, t.unit()), detail)
	t.removeMember(m, why, detail)
	t.rank(byHealth)
}

// others returns the other members with a place.
func (t *table) others(m *member) []*member {
	return without(slices.Concat(t.primaries, t.backups), m)
}

// failing returns why a member should be evicted for failures, or "".
//
// Of the others that have had recent requests, at most half are left out because they look
// broken: the rest shows whether all fail. If there were too few requests to the others for a
// judgement, the member is compared with the plain share of their failures.
func (t *table) failing(m *member) (Reason, string) {
	limits := outlier.Limits{InARow: t.cfg.ConsecutiveFailures, Share: t.cfg.ErrorRateThreshold}
	var all outlier.Count
	recent, members := 0, t.others(m)
	for _, other := range members {
		r := other.peer.health.record(t.now)
		all = all.Plus(r.Count)
		if r.Recent() {
			recent++
		}
	}
	others := outlier.Others{Spare: recent / 2, Elsewhere: outlier.Nowhere}
	if all.Requests < outlier.Enough {
		others.Elsewhere = all.Failures / max(all.Requests, 1)
	}
	for _, other := range members {
		others.Add(other.peer.health.record(t.now), limits)
	}
	cause, detail := limits.Verdict(m.peer.health.record(t.now), others)
	return Reason(cause), detail
}

// slow returns why a member should be evicted for its latency, or "". It is called after
// every success and decides at every tenth, when the percentile is fresh. The median of
// the last ten requests must be high as well, because a single long request raises the
// average for several requests.
func (t *table) slow(m *member) (Reason, string) {
	h := &m.peer.health
	limit := func(baseline time.Duration) bool {
		return float64(h.latency) > t.cfg.LatencyMultiplier*float64(baseline)
	}
	if h.samples%latencyStep != 0 || !limit(t.cfg.BaselineLatency) {
		return "", ""
	}
	l := t.latencies()
	baseline, known := l.baseline(m.peer)
	if !known || !limit(baseline) || h.lastMedian() <= baseline {
		return "", ""
	}
	return Latency, fmt.Sprintf("average latency %v, allowed are %.3g times %v, the typical 99th percentile of the others",
		h.latency.Round(time.Microsecond), t.cfg.LatencyMultiplier, baseline.Round(time.Microsecond))
}
