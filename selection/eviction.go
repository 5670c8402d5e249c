package selection

import (
	"fmt"
	"slices"
	"time"

	"github.com/ringway/ringway/selection/internal/wilson"
)

// evictionReason says why an endpoint that just failed should be evicted, or "".
//
// Failures in a row count only while the range as a whole is well: at a 10 %
// background failure rate four in a row happen to healthy endpoints. The
// failure share is judged by its Wilson lower bound, since the plain share of a
// few dozen requests is above 5 % by chance alone too often; and not when the
// range fails about as much as the endpoint (panic: the fault is elsewhere).
func (b *Balancer) evictionReason(consecutive uint32, failures, requests, failing float32) string {
	threshold := b.cfg.ErrorRateThreshold
	if int64(consecutive) > int64(b.cfg.ConsecutiveFailures) && float64(failing) < threshold {
		return fmt.Sprintf("%d consecutive failures", consecutive)
	}
	if requests < wilson.Enough {
		return ""
	}
	share := float64(failures) / float64(requests)
	if panicking := float64(failing) > threshold && float64(failing) > share/3; panicking {
		return ""
	}
	if wilson.LowerBound(float64(failures), float64(requests), wilson.Sure) > threshold {
		return fmt.Sprintf("error rate %.0f%% of %.0f recent requests", 100*share, requests)
	}
	return ""
}

// maxOut is how many of n endpoints may be evicted or half-open at once: a
// third, rounded down. So of one or two endpoints none, of three to five one.
func maxOut(n int) int { return n / 3 }

// countOut returns how many endpoints of weight > 0 there are, and how many of
// them are evicted or half-open. Endpoints of weight 0 carry no traffic: losing
// them costs nothing, so they are neither evicted nor counted.
func countOut(entries []entry) (drawable, out int) {
	for i := range entries {
		if entries[i].Weight <= 0 {
			continue
		}
		drawable++
		if phase(entries[i].state.phase.Load()) != active {
			out++
		}
	}
	return drawable, out
}

func (b *Balancer) evict(e *entry, now Instant, reason string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if phase(e.state.phase.Load()) != active {
		return
	}
	t := b.table.Load()
	// A ticket may outlive its endpoint's place in the range.
	i := slices.IndexFunc(t.entries, func(o entry) bool { return o.member == e.member })
	if t.full || i < 0 || t.entries[i].Weight <= 0 {
		return
	}
	b.putOut(e.member, now, reason)
	b.table.Store(t.again())
}

// putOut sets the eviction and its end, min(MaxEviction, 2^k s)·U(0.5, 1).
// b.mu is held; the caller publishes.
func (b *Balancer) putOut(m *member, now Instant, reason string) {
	// An endpoint that held out for as long as the longest eviction starts anew.
	if phase(m.state.phase.Load()) == active && m.evictions > 0 && now-m.readmit > Instant(b.cfg.MaxEviction) {
		m.evictions = 0
	}
	m.evictions++
	m.reason = reason
	out := b.cfg.MaxEviction
	if m.evictions < 16 {
		out = min(out, time.Second<<m.evictions)
	}
	m.until = now + Instant(float64(out)*(0.5+0.5*unit(b.random(nil))))
	m.state.phase.Store(uint32(evicted))
}

// evictProbed handles the failure of the one request of a half-open endpoint.
func (b *Balancer) evictProbed(e *entry, now Instant) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if phase(e.state.phase.Load()) != halfOpen {
		return
	}
	b.putOut(e.member, now, "failed again when tried after eviction")
	b.table.Store(b.table.Load().again())
}

// readmitProbed handles its success.
func (b *Balancer) readmitProbed(e *entry, now Instant) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if phase(e.state.phase.Load()) != halfOpen {
		return
	}
	b.readmit(e.member, now)
	b.table.Store(b.table.Load().again())
}

// readmit makes an endpoint active again with a clean record and the ramp of a
// newcomer. b.mu is held; the caller publishes.
func (b *Balancer) readmit(m *member, now Instant) {
	m.state.restart()
	m.state.rampUntil.Store(int64(now) + int64(b.cfg.SlowStart))
	m.state.phase.Store(uint32(active))
	m.readmit = now
}

// readmitExcess keeps the cap when the range shrinks around evicted endpoints:
// those whose time ends first come back. b.mu is held.
func (b *Balancer) readmitExcess(entries []entry, now Instant) {
	drawable, out := countOut(entries)
	for ; out > maxOut(drawable); out-- {
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
