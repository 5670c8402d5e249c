package selection

import (
	"fmt"
	"slices"
	"time"

	"github.com/ringway/ringway/selection/internal/wilson"
)

// record is what an endpoint that just failed is judged by.
type record struct {
	consecutive        uint32  // failures in a row
	failures, requests float32 // recent ones
	failing            float32 // share of failures in its tier
	elsewhere          float32 // lowest share expected in another tier, 1 for none
}

// evictionReason says why an endpoint that just failed should be evicted, for metrics
// and for people, or "".
//
// Failures in a row count only while the range as a whole is well: at a 10 %
// background failure rate four in a row happen to healthy endpoints. The
// failure share is judged by its Wilson lower bound, since the plain share of a
// few dozen requests is above 5 % by chance alone too often; and not when the
// range fails about as much as the endpoint (panic: the fault is not the
// endpoint's).
//
// A fault of the whole range shows in all tiers. So the range fails as little as
// the endpoint's own tier or the best of the others that has endpoints to spare;
// and where the own tier fails three times as much as that, it is the one at fault.
func (b *Balancer) evictionReason(r record) (cause EvictionCause, reason string) {
	threshold := b.cfg.ErrorRateThreshold
	failing := min(r.failing, r.elsewhere)
	worst := r.failing > 3*r.elsewhere
	if int64(r.consecutive) > int64(b.cfg.ConsecutiveFailures) && (float64(failing) < threshold || worst) {
		return ForFailuresInARow, fmt.Sprintf("%d consecutive failures", r.consecutive)
	}
	if r.requests < wilson.Enough {
		return "", ""
	}
	share := float64(r.failures) / float64(r.requests)
	if panicking := float64(failing) > threshold && float64(failing) > share/3; panicking {
		return "", ""
	}
	if wilson.LowerBound(float64(r.failures), float64(r.requests), wilson.Sure) > threshold {
		return ForErrorRate, fmt.Sprintf("error rate %.0f%% of %.0f recent requests", 100*share, r.requests)
	}
	return "", ""
}

// maxOut is how many of the n endpoints of a tier may be evicted or half-open at
// once: a third, rounded down. So of one or two endpoints none, of three to five
// one. For their failures all of a tier may be, while another tier keeps to this.
func maxOut(n int) int { return n / 3 }

func (b *Balancer) evict(e *entry, now Instant, cause EvictionCause, reason string) {
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
	b.putOut(e.member, now, cause, reason)
	b.table.Store(t.again())
}

// putOut sets the eviction and its end, min(MaxEviction, 2^k s)·U(0.5, 1).
// b.mu is held; the caller publishes.
func (b *Balancer) putOut(m *member, now Instant, cause EvictionCause, reason string) {
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
	if b.cfg.OnEvict != nil {
		b.cfg.OnEvict(cause)
	}
}

// evictProbed handles the failure of the one request of a half-open endpoint.
func (b *Balancer) evictProbed(e *entry, now Instant) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if phase(e.state.phase.Load()) != halfOpen {
		return
	}
	b.putOut(e.member, now, ForFailingAgain, "failed again when tried after eviction")
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
